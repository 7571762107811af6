"""Norms whose statistics are results, too."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convoy  # noqa: E402


def normed(x: Any) -> Any:
    return (
        *torch.native_layer_norm(x, [5, 1], None, None, 1e-5),
        *torch.native_layer_norm(x, [1], x[0, 0, 0], None, 1e-5)[1:],
        *torch.native_group_norm(x, None, None, 2, 6, 5, 3, 1e-5),
        *torch.native_batch_norm(x, x[0, :, 0, 0], None, None, None, True, 0.1, 1e-5),
    )


def test_statistics() -> None:
    x = torch.randn(2, 6, 5, 1, generator=torch.Generator().manual_seed(1))
    compiled = convoy.compile(normed, (x,), cache=False)
    torch.testing.assert_close(compiled(x), normed(x), rtol=1e-4, atol=1e-5)

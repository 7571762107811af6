"""Changes of a tensor's axes in place."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convoy  # noqa: E402


def turned(x: Any) -> Any:
    y, w = x * 2, x * 3
    z = y.t_()
    z += 1
    flat = w.view(-1)
    w.transpose_(0, 1)
    w.mul_(x.T).unsqueeze_(1)
    return y, z, flat, w.squeeze_()


def test_as_pytorch() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(convoy.compile(turned, (x,), cache=False)(x), turned(x))

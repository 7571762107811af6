"""Modules that keep something of a call in their attributes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import convoy  # noqa: E402


class Caching(torch.nn.Module):
    """Keeps its anchors for the last size, and every input."""

    anchors = torch.empty(0)
    size = 0

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.sums: dict[int, Any] = {}

    def forward(self, x: Any) -> Any:
        if self.size != len(x):
            self.size, self.anchors = len(x), torch.arange(len(x)) * 0.5
        self.seen.append(x)
        self.sums[len(x)] = x.sum()
        return x + self.anchors + self.sums[len(x)]


def test_a_trace_leaves_attributes_as_they_were() -> None:
    net, x = Caching(), torch.rand(4)
    compiled = convoy.compile(net, x)
    assert "anchors" not in vars(net) and not net.size and not net.seen and not net.sums
    torch.testing.assert_close(compiled(x), net(x))
    compiled.update_parameters()
    torch.testing.assert_close(compiled(x), net(x))
    assert net.size == 4 and len(net.seen) == 2

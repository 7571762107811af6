"""Modules that keep something of a call in their attributes."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import convoy  # noqa: E402
from convoy import errors  # noqa: E402


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


class Counting(torch.nn.Module):
    """The result depends on the number of the call."""

    calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Recurrent(torch.nn.Module):
    hidden: Any = None

    def forward(self, x: Any) -> Any:
        self.hidden = x if self.hidden is None else self.hidden / 2 + x
        return self.hidden + 0


class Window(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frames: deque[Any] = deque(maxlen=3)

    def forward(self, x: Any) -> Any:
        self.frames.append(x)
        return torch.stack([*self.frames]).mean(0)


class Calibrating(torch.nn.Module):
    """The first input sets the scale of all others."""

    scale: Any = None

    def forward(self, x: Any) -> Any:
        if self.scale is None:
            self.scale = x.std()
        return x / self.scale


class Drawing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * random.random()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Counting, "calls"),
        (Recurrent, "hidden"),
        (Window, "frames"),
        (Calibrating, "scale"),
        (Drawing, "draws"),
    ],
)
def test_results_that_depend_on_earlier_calls(kind: Any, name: str) -> None:
    net = kind()
    with pytest.raises(errors.UnsupportedOp, match=f"{name}.*State may be an argument"):
        convoy.compile(net, torch.rand(4))
    assert not getattr(net, name, None)  # as before


def test_numbers_that_are_drawn_but_not_used() -> None:
    """As for layers that are left out in training."""

    class Dropping(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            drawn = random.random()
            return x if self.training and drawn < 0.5 else x + 1

    x = torch.rand(4)
    torch.testing.assert_close(convoy.compile(Dropping().eval(), x)(x), x + 1)


def test_objects_among_the_attributes_are_put_back() -> None:
    class Cache:
        def __init__(self) -> None:
            self.layers: list[Any] = [{}]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = Cache()

        def forward(self, x: Any) -> Any:
            self.cache.layers[0]["keys"] = x
            return x + 1

    net, x = Net(), torch.rand(4)
    torch.testing.assert_close(convoy.compile(net, x)(x), x + 1)
    assert net.cache.layers == [{}]


def test_buffers_are_as_they_were_after_a_refusal() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.calls, self.table = torch.nn.BatchNorm1d(3), 0, torch.zeros(3)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.table += 1
            return self.norm(x) * self.calls + self.table

    net = Net().train()
    with pytest.raises(errors.UnsupportedOp):
        convoy.compile(net, torch.rand(2, 3))
    assert not net.calls and not net.table.any() and not net.norm.running_mean.any()
    assert not net.norm.num_batches_tracked

"""Writes to parameters and buffers while a module runs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import convoy  # noqa: E402
from convoy.errors import UnsupportedOp  # noqa: E402


class Writing(torch.nn.Module):
    """A linear layer whose weight or bias is written to before it is read."""

    def __init__(self, write: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.layer, self.trained = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.write = write

    def forward(self, x: Any) -> Any:
        self.write(self, x)
        return self.layer(x)


def _merge(net: Any, _: Any) -> None:
    net.layer.weight.data = net.trained.weight * 2


def _clamp(net: Any, _: Any) -> None:
    net.layer.weight.data.clamp_(-0.1, 0.1)


def _decay(net: Any, _: Any) -> None:
    with torch.no_grad():
        net.layer.weight.mul_(0.9)


def _keep(net: Any, x: Any) -> None:
    net.layer.bias.data = x.mean(0)


def _replace(net: Any, _: Any) -> None:
    net.layer.weight.data = torch.ones(2, 3)


@pytest.mark.parametrize("write", [_merge, _clamp])
def test_weights_that_every_call_computes_alike(write: Any) -> None:
    net, x = Writing(write), torch.randn(2, 3)
    compiled = convoy.compile(net, x, cache=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), copy.deepcopy(net)(x))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_decay, "changes 'layer.weight'"),
        (_keep, "changes 'layer.bias'"),
        (_replace, r"float32 \(2, 3\) in the place of torch.float32 \(3, 3\)"),
    ],
)
def test_other_writes_are_refused(write: Any, message: str) -> None:
    with pytest.raises(UnsupportedOp, match=message):
        convoy.compile(Writing(write), torch.randn(2, 3), cache=False)


def test_a_subgraph_does_not_leave_out_writes() -> None:
    def function(x: Any, weight: Any) -> Any:
        flag.fill_(1.0)
        return x @ weight + flag

    flag, weight = torch.zeros(3), torch.eye(3)
    torch._dynamo.reset()
    fast = torch.compile(function, backend="convoy")
    with torch.no_grad():
        assert fast(torch.zeros(2, 3), weight).eq(1).all() and flag.eq(1).all()
        net = Writing(lambda net, _: net.layer.weight.data.clamp_(-0.1, 0.1))
        torch.compile(net, backend="convoy")(torch.zeros(2, 3))
    assert net.layer.weight.abs().max() <= 0.1

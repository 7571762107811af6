"""Functions that call modules."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

import convoy  # noqa: E402
from convoy.errors import InvalidOption, UnsupportedOp  # noqa: E402
from convoy.pytorch.functions import as_module  # noqa: E402


class Caching(nn.Module):
    """Keeps its anchors for the last size."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.anchors = nn.Linear(4, 4), None

    def forward(self, x: Any) -> Any:
        if self.anchors is None:
            self.anchors = torch.arange(4.0)
        return {"logits": self.head(x) + self.anchors}


class Pipeline:
    def __init__(self, net: Any) -> None:
        self.net, self.other = net, nn.Linear(2, 2).to("meta")

    def __call__(self, x: Any) -> Any:
        return self.run(x)

    def run(self, x: Any, again: bool = False) -> Any:
        return self.run(x) if again else self.net(x)["logits"]


NET = Caching()
NETS = {"only": NET}


def logits(x: Any, net: Any = None) -> Any:
    return (net or NET)(x)["logits"]


def wrapped(function: Any) -> Any:
    return functools.wraps(function)(lambda *args: function(*args))


@pytest.mark.parametrize(
    "function",
    [
        logits,
        wrapped(logits),
        functools.partial(logits, net=NET),
        NET.forward,
        Pipeline(NET).run,
        Pipeline(NET),
        lambda x: NET(x)["logits"],
        lambda x: NETS["only"](x)["logits"],
    ],
    ids=[
        "global",
        "wrapped",
        "partial",
        "method of a module",
        "method",
        "object",
        "lambda",
        "dictionary",
    ],
)
def test_modules_are_found(function: Any) -> None:
    x = torch.randn(2, 4)
    assert set(as_module(function).parameters()) == set(NET.parameters())
    compiled = convoy.compile(function, x)
    assert NET.anchors is None  # no tensor of the trace
    got = compiled(x)
    torch.testing.assert_close(got["logits"] if isinstance(got, dict) else got, logits(x).detach())
    NET.anchors = None


def test_the_precision_and_device_are_those_of_the_modules() -> None:
    rows = nn.Embedding(9, 4).bfloat16()
    ids = torch.tensor([1, 2])
    assert convoy.compile(lambda ids: rows(ids) * 2, ids).precision == "bfloat16"
    rows.to("meta")
    with pytest.raises(InvalidOption, match="to_empty"):
        convoy.compile(lambda ids: rows(ids) * 2, ids)


def test_modules_with_the_same_name() -> None:
    net = forward = nn.Linear(4, 4)
    found = as_module(lambda x: forward(logits(net(x))))
    assert set(found.parameters()) == {*NET.parameters(), *net.parameters()}
    assert {"forward_", "net", "NET"} <= found._modules.keys()


def test_an_ensemble_of_stacked_parameters() -> None:
    nets, x = [nn.Linear(3, 2) for _ in range(3)], torch.randn(4, 3)
    held = torch.func.stack_module_state(nets)
    base = nn.Linear(3, 2, device="meta")

    def one(parameters: Any, buffers: Any) -> Any:
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    with torch.no_grad():
        got = convoy.compile(torch.func.vmap(one), held)(*held)
        torch.testing.assert_close(got, torch.stack([net(x) for net in nets]))


def test_a_buffer_that_changes_is_named() -> None:
    norm = nn.BatchNorm1d(3)
    with pytest.raises(UnsupportedOp, match=r"'norm.running_mean'.*eval\(\)"):
        convoy.compile(lambda x: norm(x), torch.randn(2, 3))


def test_parameters_of_a_function_are_updated() -> None:
    net, x = nn.Linear(3, 3), torch.randn(2, 3)
    compiled = convoy.compile(lambda x: net(x) * 2, x)
    with torch.no_grad():
        net.weight.mul_(3)
        compiled.update_parameters()
        torch.testing.assert_close(compiled(x), net(x) * 2)

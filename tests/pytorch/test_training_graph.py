"""Writes of a training step that gradients do not see."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convoy.errors import UnsupportedOp

torch = pytest.importorskip("torch")

from convoy.pytorch.training import compile_training_step  # noqa: E402


class Written(torch.nn.Module):
    """Calls a function with a parameter and an input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.tensor([-1.0, 0.25, 2.0]))

    def forward(self, x: Any) -> Any:
        return self.function(self.weight * 2, x)


def scaled(y: Any, x: Any) -> Any:
    with torch.no_grad():
        z = y.mul_(3) + 1
    return y * y * x + z


def set_element(y: Any, x: Any) -> Any:
    with torch.no_grad():
        y[0] = 5.0
        y[1:].clamp_(max=0.3)
    return y * y * x


def likelihood(y: Any, x: Any) -> Any:
    return torch.nn.functional.gaussian_nll_loss(x, x * 2, y.abs(), eps=1.0)


@pytest.mark.parametrize("function", [scaled, set_element, likelihood])
def test_gradients_pass_writes(function: Any) -> None:
    net, x = Written(function), torch.tensor([1.0, 2.0, 3.0])
    reference = copy.deepcopy(net)
    reference(x).sum().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    step = compile_training_step(net, lambda y, _: y.sum(), optimizer, x, x)
    torch.testing.assert_close(step(x, x), reference(x).sum().detach())
    step.update_module()
    torch.testing.assert_close(net.weight, reference.weight - reference.weight.grad)


def test_a_write_to_detached_data_is_refused() -> None:
    net, x = Written(lambda y, x: y.data.clamp_(min=0.5) * y * x), torch.ones(3)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with pytest.raises(UnsupportedOp, match="a write to what is detached"):
        compile_training_step(net, lambda y, _: y.sum(), optimizer, x, x)

"""Operators of functions: conditions, loops and scans of torch.export, flexible attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import convoy
from convoy.errors import UnsupportedOp


class Module(nn.Module):
    """A function of a linear layer and tensors, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        self.register_buffer("slopes", torch.tensor([0.5, 0.25]))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(self, *tensors)


def check(function: Callable[..., Any], *inputs: tuple[torch.Tensor, ...]) -> None:
    """Compare with PyTorch on all inputs; the first ones are what is compiled for."""
    torch.manual_seed(0)
    module = Module(function).eval()
    compiled = convoy.compile(module, inputs[0])
    for given in inputs:
        with torch.no_grad():
            torch.testing.assert_close(compiled(*given), module(*given))


def test_both_branches_of_a_condition() -> None:
    def function(m: Any, x: Any) -> Any:
        def inner(y: Any) -> Any:
            return torch.cond(y.mean() > 0.5, lambda z: z * 2, lambda z: z - 1, (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: m.linear(y), (x,))

    x = torch.rand(2, 4)
    check(function, (x,), (x + 1,), (-x,))


def test_a_loop_whose_steps_are_known() -> None:
    def function(m: Any, x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, torch.tanh(m.linear(y))

        return while_loop(lambda i, y: i < 3, step, (torch.tensor(0), x))[1]

    check(function, (torch.randn(2, 4),))


def test_a_loop_that_ends_by_values_is_refused_with_what_to_do() -> None:
    def function(m: Any, x: Any) -> Any:
        return while_loop(lambda y: y.sum() < 10, lambda y: (y + 1,), (m.linear(x),))[0]

    with pytest.raises(UnsupportedOp, match=r"ends by values.*torch\.where\.$"):
        convoy.compile(Module(function), torch.rand(2, 4))


def test_scans() -> None:
    def function(m: Any, x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            return torch.tanh(m.linear(state) + row), state * 2

        sums = associative_scan(lambda a, b: a * 0.5 + b, x, 1, combine_mode="generic")
        return *scan(step, torch.zeros(4), x), sums

    check(function, (torch.randn(3, 4),))


def test_attention_with_a_function_of_scores_and_a_mask() -> None:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cpu")

    def function(m: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        def change(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + m.slopes[h] * (i - j) + bias[i, j]

        return flex_attention(q, k, v, score_mod=change, block_mask=mask, enable_gqa=True)

    shapes = (1, 2, 8, 4), (1, 1, 8, 4), (1, 1, 8, 4), (8, 8)
    check(function, *(tuple(torch.randn(shape) for shape in shapes) for _ in range(2)))

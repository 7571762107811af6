"""Recurrent layers in one kernel against PyTorch in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

import convoy

pytestmark = pytest.mark.gpu

#: (cell, hidden, sequences, steps, directions, layers): units that fill no warp, states in more
#: than one tile, weights beside the registers, more units than the kernel has room for, one step.
LAYERS = [
    ("LSTM", 256, 8, 64, 1, 1),
    ("LSTM", 96, 3, 17, 2, 2),
    ("LSTM", 33, 1, 1, 1, 1),
    ("LSTM", 512, 5, 9, 2, 1),
    ("LSTM", 300, 150, 3, 1, 1),
    ("LSTM", 1, 2, 4, 2, 1),
    ("LSTM", 64, 400, 5, 2, 1),
    ("LSTM", 520, 2, 3, 1, 1),
    ("GRU", 128, 16, 30, 2, 1),
    ("GRU", 500, 40, 6, 1, 2),
    ("GRU", 20, 9, 2, 1, 1),
    ("GRU", 256, 270, 4, 1, 1),
]


class Last(torch.nn.Module):
    """All results of a layer, whose states before the first step are given."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, last = self.layer(x, states if len(states) > 1 else states[0])
        return (y, *last) if len(states) > 1 else (y, last)


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_are_pytorchs(case: tuple[str, int, int, int, int, int], dtype: torch.dtype) -> None:
    cell, hidden, batch, time, directions, layers = case
    torch.manual_seed(0)
    layer = getattr(torch.nn, cell)(40, hidden, layers, bidirectional=directions == 2)
    net = Last(layer).eval().to(dtype).cuda()
    states = [
        torch.randn(layers * directions, batch, hidden, device="cuda", dtype=dtype)
        for _ in range(2 if cell == "LSTM" else 1)
    ]
    x = torch.randn(time, batch, 40, device="cuda", dtype=dtype)
    fast = convoy.compile(net, (x, *states))
    got = fast(x, *states)
    exact = Last(layer.double().cpu()).eval()(x.double().cpu(), *(s.double().cpu() for s in states))
    limit = {torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for mine, right in zip(got, exact, strict=True):
        error = (mine.double().cpu() - right).norm() / right.norm()
        assert error < limit, (case, error)
    again = fast(x, *states)
    assert all(itertools.starmap(torch.equal, zip(got, again, strict=True)))

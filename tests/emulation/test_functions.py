"""Functions drawn at random, as scheduled for a GPU: their CUDA against LLVM."""

from __future__ import annotations

import pytest
import tvm

from convoy.lower.compile import build_kernels, compiled
from convoy.tir import rules

from ..graph.kernels import TARGET
from ..graph.random_functions import differences, draw, run
from .kernels import emulated


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("first", [100])
def test_cuda(first: int, backwards: bool) -> None:
    drawn = {f"drawn_{seed}": draw(seed) for seed in range(first, first + 20)}
    mod = tvm.IRModule({n: d.func.with_attr("global_symbol", n) for n, d in drawn.items()})
    with emulated(backwards):
        mod = rules.schedule_kernels(TARGET)(mod)
        library, _ = compiled(mod, TARGET, lambda mod: build_kernels(mod, TARGET))
    for name, one in drawn.items():
        error = differences(run(library[name], one, tvm.cpu()), one.by_llvm())
        assert error < one.tolerance, name

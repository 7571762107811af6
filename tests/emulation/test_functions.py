"""Functions drawn at random, as scheduled for a GPU: their CUDA against LLVM."""

from __future__ import annotations

import pytest
import tvm

from convoy.lower.compile import build_kernels, compiled
from convoy.tir import rules

from ..graph.kernels import TARGET
from ..graph.random_functions import differences, draw, run
from .kernels import emulated, turns


@pytest.mark.parametrize("first", [100])
def test_cuda(first: int) -> None:
    drawn = {f"drawn_{seed}": draw(seed) for seed in range(first, first + 20)}
    mod = tvm.IRModule({n: d.func.with_attr("global_symbol", n) for n, d in drawn.items()})
    with emulated():
        mod = rules.schedule_kernels(TARGET)(mod)
        library, _ = compiled(mod, TARGET, lambda mod: build_kernels(mod, TARGET))
    for name, one in drawn.items():
        want = one.by_llvm()
        for backwards in (False, True):
            with turns(backwards):
                got = run(library[name], one, tvm.cpu())
            assert differences(got, want) < one.tolerance, name

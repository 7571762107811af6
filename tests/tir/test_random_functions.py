"""Functions drawn at random get a schedule and code for a GPU, all of them; and the simple
schedules keep their meaning."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx

from convoy.lower.compile import build_kernels, compiled
from convoy.tir import fallback, rules

from ..emulation.kernels import compile_kernels
from ..graph.kernels import TARGET
from ..graph.random_functions import differences, draw, run


@pytest.mark.parametrize("seed", range(60))
def test_compiles_for_a_gpu(seed: int) -> None:
    func = draw(seed).func.with_attr("global_symbol", "drawn")
    mod = rules.schedule_kernels(TARGET)(tvm.IRModule({"drawn": func}))
    library, mod = compiled(mod, TARGET, lambda mod: build_kernels(mod, TARGET))
    assert library["drawn"] is not None
    assert not fallback.works_on_the_host(mod["drawn"].body)


def test_some_of_them_break_a_rule() -> None:
    """What the simpler schedules are for."""
    mod = tvm.IRModule({f"drawn_{seed}": draw(seed).func for seed in range(40)})
    assert rules.rescheduled(rules.schedule_kernels(TARGET)(mod))


def per_element(func: tirx.PrimFunc) -> tirx.PrimFunc:
    with TARGET:
        return fallback.ThreadPerElement().apply(func, TARGET, False).mod["main"]


@pytest.mark.parametrize("schedule", [per_element, fallback.one_thread])
def test_simple_schedules_keep_the_meaning(schedule) -> None:
    drawn = {f"drawn_{seed}": draw(seed) for seed in range(25)}
    library = compile_kernels({name: schedule(d.func) for name, d in drawn.items()}, TARGET)
    for name, one in drawn.items():
        error = differences(run(library[name], one, tvm.cpu()), one.by_llvm())
        assert error < one.tolerance, name


def test_differences() -> None:
    one, two = np.array([1.0, np.inf]), np.array([2.0, np.inf])
    assert differences([one], [two]) == 0.5
    assert differences([one], [np.array([np.inf, 1.0])]) == np.inf
    assert differences([np.array(3)], [np.array(3)]) == 0

"""Each operator of Relax by itself on the GPU, eager, captured and replayed, against the CPU; and
kernels that only CUDA's own compiler refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi
from tvm.s_tir.dlight.base import ScheduleRule

import convoy
from convoy.lower import compile as compiling
from convoy.tir import rules
from convoy.tir.fallback import ThreadPerElement, one_thread

from ..graph.operators import Operator, all_operators, check_equal
from ..graph.random_functions import differences, draw, run
from ..lower.test_operators import REFUSED

pytestmark = pytest.mark.gpu

OPERATORS = {name: case for name, case in all_operators().items() if name not in REFUSED}
#: Compiled by each of the simple schedules too.
SIMPLE = [
    "add", "wide", "permute", "concat", "split", "take", "scatter_elements_add", "index_put",
    "sum_last", "argmax", "cumsum_middle", "sort", "topk", "matmul", "conv2d_groups",
    "avg_pool2d", "softmax", "layer_norm", "resize2d_cubic_half_pixel", "get_valid_counts",
]  # fmt: skip


def check(case: Operator) -> convoy.CompiledModule:
    inputs = case.arrays()
    want = [np.array(y) for y in convoy.build(case.module(), "llvm").session()(*inputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = convoy.build(case.module(), "cuda", precision="float32", measure=False, streams=1)
    session = built.session()
    for _ in range(3):
        check_equal([np.array(y) for y in session(*inputs)], want, case.half)
    return built


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    check(OPERATORS[name])


@pytest.mark.parametrize("only", [rules.RULES[-1:], ()], ids=["ThreadPerElement", "OneThread"])
@pytest.mark.parametrize("name", SIMPLE)
def test_simple_schedules(
    name: str, only: tuple[ScheduleRule, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", only)
    check(OPERATORS[name])


@pytest.mark.parametrize("seed", range(60))
def test_random_function(seed: int) -> None:
    """By the schedule of first choice that compiles, and by the simple ones."""
    drawn, target = draw(seed), tvm.target.Target.from_device(tvm.cuda(0))
    want = drawn.by_llvm()
    named = drawn.func.with_attr("global_symbol", "main")
    with target:
        scheduled = [rules.schedule_kernels(target)(tvm.IRModule({"main": named}))["main"]]
        scheduled.append(ThreadPerElement().apply(named, target, False).mod["main"])
        scheduled.append(one_thread(named))
    for func in scheduled:
        mod = tvm.IRModule({"main": func})
        library, _ = compiling.compiled(
            mod, target, lambda mod: compiling.build_kernels(mod, target)
        )
        assert differences(run(library["main"], drawn, tvm.cuda(0)), want) < 1e-2


class TooMuchShared(ScheduleRule):
    """Keeps a whole input in shared memory, however large it is: CUDA's compiler refuses that."""

    def apply(self, func, target, tunable):
        sch = s_tir.Schedule(func)
        (block,) = sch.get_child_blocks(sch.get_sblock("root"))
        grid, thread, _ = sch.split(sch.get_loops(block)[0], factors=[1, 1, None])
        sch.bind(grid, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.compute_at(sch.cache_read(block, 0, "shared"), thread)
        return sch


def test_what_the_cuda_compiler_refuses_is_scheduled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "RULES", (TooMuchShared(), *rules.RULES))
    target = tvm.target.Target.from_device(tvm.cuda(0))
    functions = {}
    for name, size in (("large", 100_000), ("small", 1000)):
        x = te.placeholder((size,), "float32", name="x")
        y = topi.add(x, 1.0)
        functions[name] = te.create_prim_func([x, y]).with_attr("global_symbol", name)
    mod = rules.schedule_kernels(target)(tvm.IRModule(functions))
    library, built = compiling.compiled(
        mod, target, lambda mod: compiling.build_kernels(mod, target)
    )
    (again,) = rules.rescheduled(built)
    assert (again.kernel, again.rule) == ("large", "Elementwise") and "shared" in again.tried
    for name, size in (("large", 100_000), ("small", 1000)):
        x = np.arange(size, dtype="float32")
        on_gpu = [tvm.runtime.tensor(a, tvm.cuda(0)) for a in (x, np.zeros_like(x))]
        library[name](*on_gpu)
        np.testing.assert_array_equal(on_gpu[1].numpy(), x + 1)

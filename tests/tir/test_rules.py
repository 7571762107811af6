"""Kernels on which schedules or code generation fail: the next simpler schedule for them alone, its
results, what is said about it, and one clear error where nothing is left."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, te, tirx, topi
from tvm.relax import op
from tvm.s_tir import dlight
from tvm.s_tir.dlight.base import ScheduleRule

import convoy
from convoy.errors import UnsupportedOp
from convoy.ir.artifact import Meta
from convoy.lower import codegen
from convoy.lower import compile as compiling
from convoy.lower.executable import lower, lower_modules
from convoy.lower.lowered import Lowered, _kernels
from convoy.streams import durations, program
from convoy.tir import fallback
from convoy.tir import rules as schedules
from convoy.tir.aliasing import chooses_from_results

from ..emulation.kernels import call, compile_kernels, emulate
from ..graph.kernels import TARGET, small_cases
from ..graph.nets import relative_error

CASES = {case.name: case for case in small_cases()}
CHOSEN = [
    "affine_relu", "entry_rgb", "concat_odd", "max_pool", "avg_pool_ceil_counted", "mean_odd",
    "mean_rows_relu", "softmax_cast", "depthwise_multiplier", "conv_residual_bias_relu",
    "batch_matmul",
]  # fmt: skip


def network() -> tvm.IRModule:
    """Two kernels that cannot be fused: a softmax and a sum."""
    x = relax.Var("x", relax.TensorType((6, 40), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.softmax(x, 0))  # over the last axis it has a kernel of its own
            z = builder.emit_output(op.sum(builder.emit(op.multiply(y, y)), 0))
        builder.emit_func_output(z)
    return builder.get()


def kernel(build, *inputs: te.Tensor) -> tirx.PrimFunc:
    return te.create_prim_func([*inputs, build(*inputs)])


def placeholder(*shape: int, dtype: str = "float32", name: str = "x") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def places(x: te.Tensor) -> te.Tensor:
    """Positions by value, by a function of the host that no GPU can call."""
    return topi.argsort(x, dtype="int32")


class FailsOnSoftmax(ScheduleRule):
    def apply(self, func, target, tunable):
        if "T_softmax_norm" in func.script():
            raise IndexError("made up for a test")


class SevenLanes(ScheduleRule):
    """Vectors of a length that CUDA does not have, where it divides."""

    def apply(self, func, target, tunable):
        sch = s_tir.Schedule(func)
        (block,) = sch.get_child_blocks(sch.get_sblock("root"))
        if int(sch.get(sch.get_loops(block)[0]).extent) % 7:
            return None
        grid, thread, vector = sch.split(sch.get_loops(block)[0], factors=[None, 1, 7])
        sch.bind(grid, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        sch.vectorize(vector)
        return sch


class BindsNothing(ScheduleRule):
    def apply(self, func, target, tunable):
        return s_tir.Schedule(func)


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    _kernels.cache_clear()


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch):
    def first(*added: ScheduleRule, only: bool = False) -> None:
        monkeypatch.setattr(schedules, "RULES", added if only else (*added, *schedules.RULES))

    return first


def by(rung: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    if rung == schedules.ONE_THREAD:
        return fallback.one_thread(func)
    with TARGET:
        return fallback.ThreadPerElement().apply(func, TARGET, False).mod["main"]


def compile_for_cuda(func: tirx.PrimFunc) -> str:
    mod = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    return compiling.build_kernels(mod, TARGET).imports[0].inspect_source()


def test_equal_functions_are_scheduled_once(rules: Callable[..., None]) -> None:
    applied: list[int] = []

    class Counting(schedules.ThreadPerElement):
        def apply(self, func, target, tunable):
            applied.append(int(func.params[0].shape[0]))
            return super().apply(func, target, tunable)

    rules(Counting())

    def scheduled(size: int) -> tirx.PrimFunc:
        x = te.placeholder((size,), "float32", name="x")
        y = te.compute((size,), lambda i: x[i] * 3, name="y")
        func = te.create_prim_func([x, y])
        return schedules.schedule_kernels(TARGET)(tvm.IRModule({"kernel": func}))["kernel"]

    first, again, other = scheduled(96), scheduled(96), scheduled(97)
    assert applied == [96, 97]
    tvm.ir.assert_structural_equal(first, again)
    assert not fallback.works_on_the_host(other.body)


@functools.cache
def chosen(rung: str) -> tuple[dict[str, tirx.PrimFunc], tvm.runtime.Module]:
    """Kernels with the schedules of a rule, and compiled."""
    scheduled = {f"case_{name}": by(rung, CASES[name].kernel()[0]) for name in CHOSEN}
    return scheduled, compile_kernels(scheduled, TARGET)


@pytest.mark.parametrize("rung", ["ThreadPerElement", schedules.ONE_THREAD])
@pytest.mark.parametrize("name", CHOSEN)
def test_simple_schedules_keep_the_meaning(name: str, rung: str) -> None:
    scheduled, kernels = chosen(rung)
    *_, got = call(kernels[f"case_{name}"], *CASES[name].kernel()[1])
    error = relative_error(got.astype("float32"), CASES[name].reference(CASES[name].inputs()))
    assert error < (2e-3 if got.dtype != "float32" else 1e-5)
    source = compile_for_cuda(scheduled[f"case_{name}"])
    assert ("threadIdx.x" in source) == (rung == "ThreadPerElement")


def test_axes_that_are_no_loops_of_their_own_are_not_parallel() -> None:
    """Two iterations of a loop that is halved write the same element."""
    x = placeholder(8)
    func = kernel(lambda x: te.compute((8,), lambda i: x[i] + 1, name="y"), x)
    sch = s_tir.Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    sch.split(sch.get_loops(block)[0], factors=[4, 2])
    assert fallback._outer_axes(sch, sch.mod["main"], block) == []


def test_a_rule_that_fails_is_passed_over_for_that_kernel_alone(rules) -> None:
    rules(FailsOnSoftmax())
    found = schedules.rescheduled(lower_modules({"main": network()}, TARGET, cuda_graph=False))
    (softmax,) = found
    assert "softmax" in softmax.kernel and softmax.rule == "FusedRows"
    assert softmax.failed == (("FailsOnSoftmax", "made up for a test"),)


def test_no_statement_is_left_to_the_host(rules) -> None:
    """It would read device memory from the CPU."""
    rules(BindsNothing())
    found = schedules.rescheduled(lower_modules({"main": network()}, TARGET, cuda_graph=False))
    assert [r.failed[0][0] for r in found] == ["BindsNothing"] * 2
    assert all("outside of any thread" in r.tried for r in found)


def test_a_block_without_loops_runs_in_one_thread() -> None:
    """Loops that an operator brings itself, whose iterations may depend on each other."""
    x, indices, values = placeholder(6), placeholder(4, dtype="int64", name="i"), placeholder(4)
    func = te.create_prim_func([
        x, indices, values, topi.index_put(x, [indices], values, accumulate=True)
    ])  # fmt: skip
    mod = schedules.schedule_kernels(TARGET)(tvm.IRModule({"index_put": func}))
    (found,) = schedules.rescheduled(mod)
    assert found.rule == schedules.ONE_THREAD
    inputs = [np.zeros(6, "float32"), np.array([1, 1, 5, 1]), np.arange(1, 5, dtype="float32")]
    *_, got = emulate(mod["index_put"], TARGET, *inputs, np.full(6, np.nan, "float32"))
    assert got.tolist() == [0, 7, 0, 0, 0, 3]
    compile_for_cuda(mod["index_put"])


def test_a_place_of_a_maximum_is_kept_in_registers() -> None:
    """CUDA reorders a choice between a result in device memory and an input."""
    x = placeholder(6, 40)
    func = kernel(lambda x: topi.argmax(x, 1), x)
    with TARGET:
        stock = dlight.gpu.Fallback().apply(func, TARGET, False).mod["main"]
        own = fallback.ThreadPerElement().apply(func, TARGET, False).mod["main"]
        assert chooses_from_results(stock.body) and not chooses_from_results(own.body)
        with pytest.raises(s_tir.ScheduleError, match="reorder"):
            fallback.Fallback().apply(func, TARGET, False)
    values = np.random.default_rng(0).standard_normal((6, 40), "float32")
    _, got = emulate(own, TARGET, values, np.zeros(6, "int32"))
    assert got.tolist() == values.argmax(1).tolist()


def test_a_choice_between_inputs_or_in_registers_is_left_alone() -> None:
    x, y = placeholder(6), placeholder(6, name="y")
    func = kernel(lambda x, y: topi.where(topi.less(x, y), x, y), x, y)
    with TARGET:
        found = fallback.Fallback().apply(func, TARGET, False)
    assert not chooses_from_results(found.mod["main"].body)


def test_a_kernel_that_does_not_compile_is_scheduled_again(rules) -> None:
    rules(SevenLanes())
    mod = tvm.IRModule({
        name: kernel(lambda x: te.compute(x.shape, lambda i: x[i] + 1, name="y"), x)
        .with_attr("global_symbol", name)
        for name, x in (("seven", placeholder(700)), ("eight", placeholder(800)))
    })  # fmt: skip
    mod = schedules.schedule_kernels(TARGET)(mod)
    assert schedules.rescheduled(mod) == []
    library, built = compiling.compiled(
        mod, TARGET, lambda mod: compiling.build_kernels(mod, TARGET)
    )
    (again,) = schedules.rescheduled(built)
    assert (again.kernel, again.rule) == ("seven", "Elementwise")
    assert "SevenLanes" in again.tried and "lanes" in again.tried
    assert built["eight"].same_as(mod["eight"])
    assert library["seven"] is not None and library["eight"] is not None


def test_a_build_says_what_was_tried(rules) -> None:
    rules(FailsOnSoftmax())
    with pytest.warns(UserWarning, match=r"simpler schedule: .*softmax.* made up for a test"):
        built = convoy.build(network(), "cuda", precision="float32", measure=False)
    (line,) = built.meta.rescheduled
    assert "softmax" in line and "FusedRows" in line
    assert Meta.loads(built.meta.dumps()).rescheduled == built.meta.rescheduled


def test_modules_of_before_say_nothing() -> None:
    old = json.loads(Meta((), (), "cuda", "float16").dumps())
    del old["rescheduled"]
    assert Meta.loads(json.dumps(old)).rescheduled == ()


def test_nothing_is_compiled_twice_where_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    builds, real = [], codegen.build
    monkeypatch.setattr(codegen, "build", lambda *a, **k: builds.append(a) or real(*a, **k))
    built = convoy.build(network(), "cuda", precision="float32", measure=False)
    assert len(builds) == 1 and built.meta.rescheduled == ()


def test_what_is_launched_is_read_again_where_code_generation_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The streams are planned by what kernels launch and allocate."""
    real, programs = codegen.build, []

    def build(mod, *args, **options):
        scripts = [f.script() for f in mod.functions.values()]
        if any('"shared"' in script or "tvm_warp_shuffle" in script for script in scripts):
            raise tvm.error.InternalError("too hard for a test")
        return real(mod, *args, **options)

    def read(mod, device):
        programs.append(program.read(mod, device))
        return programs[-1]

    monkeypatch.setattr(codegen, "build", build)
    monkeypatch.setattr("convoy.streams.schedule.read", read)
    with pytest.warns(UserWarning, match="softmax by Fallback"):
        convoy.build(network(), "cuda", precision="float32", measure=False)
    first, last = ([op for op in p.ops if "softmax" in op.symbol] for p in programs)
    assert first != last


def test_schedules_are_decided_on_when_all_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trial would compile them, behind the program that it was decided on."""
    made, compiled = [], []
    init, from_plan = Lowered.__init__, durations.from_plan

    def remembered(self, *args, **options):
        init(self, *args, **options)
        made.append(self)

    def planning(ops, plan):
        compiled.append("kernels" in vars(made[-1]))
        return from_plan(ops, plan)

    monkeypatch.setattr(Lowered, "__init__", remembered)
    monkeypatch.setattr(durations, "from_plan", planning)
    convoy.build(network(), "cuda", precision="float32", measure=False)
    assert compiled == [True]


def test_a_kernel_that_nothing_compiles_is_named() -> None:
    x = relax.Var("x", relax.TensorType((6,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.exp(x))
            z = builder.emit_output(builder.call_te(places, y, primfunc_name_hint="places"))
        builder.emit_func_output(z)
    with pytest.raises(UnsupportedOp) as caught:
        convoy.build(builder.get(), "cuda", precision="float32", measure=False)
    text = str(caught.value)
    assert "places of float32(6,), int32(6,)" in text
    assert "ThreadPerElement" in text and "OneThread" in text and "tvm_call_packed" in text
    assert "T.func_attr" not in text and "Traceback" not in text
    lower(builder.get(), "llvm")  # where the host's function can be called


def test_a_compiler_that_is_missing_is_no_fault_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(*args, **options):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(codegen, "build", build)
    with pytest.raises(RuntimeError, match="no compiler here"):
        convoy.build(network(), "cuda", precision="float32", measure=False)


@pytest.mark.parametrize("target", ["cuda", "llvm"])
def test_an_operator_that_cannot_be_lowered_is_named(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convoy.lower import legalize

    def refuse(builder, call):
        raise NotImplementedError("no loops for a test")

    monkeypatch.setattr(legalize, "_softmax", refuse)
    with pytest.raises(
        UnsupportedOp, match=r"nn\.softmax of float32\(6, 40\): no loops for a test"
    ):
        convoy.build(network(), target, precision="float32")


def test_reasons_are_one_line() -> None:
    assert schedules.why(ValueError("^^^\n  Error message: too large\nlong story")) == (
        "Error message: too large"
    )
    compiler = ValueError("nvrtc failed\nkernels.cu(14): error: no such thing\nkernels.cu(15): ...")
    assert schedules.why(compiler) == "error: no such thing"
    linker = ValueError("NVRTC compilation failed:\nptxas error   : too much shared data")
    assert schedules.why(linker) == "ptxas error   : too much shared data"
    assert schedules.why(ValueError("")) == "ValueError"
    assert len(schedules.why(ValueError("x" * 5000))) < 400

"""Every kind of kernel: the right rule takes it, the schedule keeps its meaning, and the generated
CUDA moves 16 bytes at a time where it should."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, topi

from convoy.tir import ChannelReduce, RowReduce, Window
from convoy.tir.gemv import FEWEST_LANES, _lanes_and_width
from convoy.tir.loads import block_size, itemsize, vector_width
from convoy.tir.rules import RULES

from ..emulation.kernels import call, compile_kernels, emulate
from ..graph.kernels import TARGET, Case, conv, cuda_source, small_cases
from ..graph.nets import relative_error

CASES = {case.name: case for case in small_cases()}


def schedule(func):
    """(rule's name, scheduled PrimFunc)"""
    for rule in RULES:
        with TARGET:
            done = rule.apply(func, TARGET, False)
        if done is not None:
            return type(rule).__name__, done.mod["main"]
    return "none", func


@functools.cache
def scheduled_cases() -> tuple[dict[str, str], tvm.runtime.Module]:
    """The rule of each case, and the kernels."""
    found = {name: schedule(case.kernel()[0]) for name, case in CASES.items()}
    kernels = compile_kernels({f"case_{name}": func for name, (_, func) in found.items()}, TARGET)
    return {name: rule for name, (rule, _) in found.items()}, kernels


@pytest.mark.parametrize("name", CASES)
def test_schedule_keeps_the_meaning(name):
    case = CASES[name]
    rules, kernels = scheduled_cases()
    assert rules[name] == case.rule
    want = case.reference(case.inputs())
    for backwards in (False, True):
        *_, got = call(kernels[f"case_{name}"], *case.kernel()[1], backwards=backwards)
        assert got.shape == want.shape
        error = relative_error(got.astype("float32"), want)
        assert error < (2e-3 if got.dtype == "float16" else 1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "affine_relu", "affine_relu_n1", "add", "concat", "concat_of_arithmetic", "gate",
        "max_pool", "max_pool_affine_relu", "avg_pool", "mean", "depthwise", "depthwise_5x5",
        "conv", "conv_f32",
    ],
)  # fmt: skip
def test_cuda_moves_sixteen_bytes(name):
    """Operands and results in device memory are read and written 16 bytes at a time only."""
    func, _ = CASES[name].kernel()
    source = cuda_source(schedule(func)[1])
    signature, body = source.split("{", 1)
    pointers = re.findall(r"(\w+) ?\* __restrict__ (\w+)", signature)
    assert len(pointers) >= 2
    for dtype, pointer in pointers:
        vector = "float4" if dtype == "float" else "uint4"
        accesses = body.count(f"{pointer} + ") + body.count(f"{pointer}[")
        assert accesses and accesses == body.count(f"*({vector}*)({pointer} + "), (pointer, source)


def test_threads_run_along_the_operand_where_the_result_is_transposed():
    """Neighbouring threads read neighbouring channels, also without an axis for the batch of 1."""
    shapes = [(1, 8, 8, 40), (1, 4, 4, 40)]

    def heads(emit, *levels):
        turned = [emit(relax.op.permute_dims(x, [0, 3, 1, 2])) for x in levels]
        flat = [emit(relax.op.reshape(x, (1, 40, -1))) for x in turned]
        return emit(relax.op.concat(flat, axis=2))

    for case in (CASES["exit_n1"], Case("heads", shapes, ["float16"] * 2, heads, "Elementwise")):
        func, arrays = case.kernel()
        scheduled = schedule(func)[1]
        channels = case.shapes[0][-1]
        (thread,) = re.findall(r"v0 = T.axis.spatial\(T.int64\(\d+\), (.*)\)", scheduled.script())[
            :1
        ]
        assert thread.endswith(f"% T.int64({channels})"), scheduled.script()
        *_, got = emulate(scheduled, TARGET, *arrays)
        np.testing.assert_array_equal(got, case.reference(case.inputs()).astype("float16"))


@pytest.mark.parametrize(
    ("shape", "axis", "rule"),
    [((4, 65, 512), 1, "FusedRows"), ((2, 8, 100), 1, "FusedRows")],
)
def test_long_or_few_rows_have_many_threads_each(shape, axis, rule):
    case = Case("", [shape], ["float32"], lambda e, x: e(relax.op.nn.softmax(x, axis)), rule)
    assert schedule(case.kernel()[0])[0] == rule


def test_rows_of_a_matrix_are_read_by_whole_warps():
    """16 bytes a thread of the matrix and of the vector, for any number of rows of the vector."""
    for rows, c, k in ((1, 512, 32), (4, 960, 40), (16, 256, 1000)):
        case = Case("gemv", [(rows, 1, 1, c), (k, 1, 1, c)], ["float16"] * 2, conv, "Gemv")
        func, _ = case.kernel()
        source = cuda_source(schedule(func)[1])
        for pointer in ("p0_ptr", "p1_ptr"):
            reads = source.count(f"{pointer} + ")
            assert reads and reads == source.count(f"*(uint4*)({pointer} + "), source


@pytest.mark.parametrize("c", [72, 216, 1512, 20])
def test_lengths_with_few_powers_of_two_have_several_threads_a_row(c):
    case = Case("gemv", [(4, 1, 1, c), (144, 1, 1, c)], ["float16"] * 2, conv, "Gemv")
    rule, scheduled = schedule(case.kernel()[0])
    threads = re.search(r"__launch_bounds__\((\d+)\)", cuda_source(scheduled))
    assert rule == "Gemv" and int(threads[1]) >= 32


@given(st.integers(4, 2048).map(lambda n: n * FEWEST_LANES), st.sampled_from([4, 8]))
def test_threads_of_a_row(length: int, most: int) -> None:
    """Vectors do not split, several threads share a row, and long rows have about a warp."""
    lanes, width = _lanes_and_width(length, most)
    vectors = length // width
    assert length % width == 0 and FEWEST_LANES <= lanes <= 64
    assert width == most or length % (2 * width) or length // (2 * width) < FEWEST_LANES
    assert lanes == vectors if vectors <= 32 else lanes > 16
    assert vectors % lanes == 0 or not any(vectors % n == 0 for n in range(17, 65))


def test_arithmetic_inside_a_copy_is_not_vectorised():
    """CUDA has no vectors of eight bools: a copy that arithmetic was put into is none any more."""
    func, _ = CASES["concat_of_concat_of_where"].kernel()
    assert "uint4" in cuda_source(schedule(func)[1])


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: topi.logical_not(topi.less(x, y)),
        lambda x, y: topi.where(topi.logical_not(topi.cast(x, "bool")), x, y),
        lambda x, y: topi.cast(topi.cast(x, "bool"), "float16"),
    ],
)
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_bools_are_moved_one_by_one(build, dtype):
    """TVM takes four of them for four numbers of 16 bits: twice the bytes."""
    x, y = (tvm.te.placeholder((32, 64), dtype, name=name) for name in "xy")
    _, scheduled = schedule(tvm.te.create_prim_func([x, y, build(x, y)]))
    source = cuda_source(scheduled)
    bools = "|".join(set(re.findall(r"bool ?\*? ?(?:__restrict__ )?(\w+)", source))) or "none"
    assert not re.search(rf"\*\(\w+[48]\*\)\((?:{bools})\b", source), source


def test_a_constant_is_no_copy():
    """Rows of an attention that see no key are zeros: a tensor of them has no reads to align."""
    seen, x = (
        tvm.te.placeholder((2, 64, size), dtype, name=name)
        for name, size, dtype in (("seen", 1, "bool"), ("x", 64, "float32"))
    )
    zeros = topi.full((2, 64, 64), "float32", 0.0)
    result = topi.cast(topi.where(topi.logical_not(seen), zeros, x), "float16")
    rule, scheduled = schedule(tvm.te.create_prim_func([seen, x, result]))
    assert rule == "Elementwise" and "uint4" in cuda_source(scheduled)


def test_vector_width():
    assert vector_width(64, "bool") == 1
    assert vector_width(64, "float16") == 8
    assert vector_width(12, "float16") == 4
    assert vector_width(12, "float32") == 4
    assert vector_width(7, "float32") == 1
    assert [itemsize(d) for d in ("bool", "int8", "bfloat16", "float64")] == [1, 1, 2, 8]
    assert [vector_width(16, d) for d in ("int8", "float16", "float32")] == [4, 8, 4]


@pytest.mark.parametrize("total", [1, 31, 32, 1000, 25088, 6272, 100352, 9633792])
def test_block_size(total):
    threads = block_size(total)
    assert 32 <= threads <= 256 and threads % 32 == 0
    if any(total % t == 0 for t in (32, 64)):
        assert total % threads == 0  # no bounds check in the kernel


def test_one_result_is_not_stored_by_a_block_of_threads():
    """A kernel of several threads for one number has to guard its store; rules that bind a thread
    to each result would lose that guard, so they leave it alone."""
    x = tvm.te.placeholder((64,), "float32", name="x")
    i = tvm.te.reduce_axis((0, 64), name="i")
    total = tvm.te.compute((), lambda: tvm.te.sum(x[i], axis=[i]), name="total")
    func = tvm.te.create_prim_func([x, total])
    with TARGET:
        assert Window().apply(func, TARGET, False) is None
        assert ChannelReduce().apply(func, TARGET, False) is None
        assert RowReduce().apply(func, TARGET, False) is None


def test_a_number_computed_from_one_sum():
    x = tvm.te.placeholder((191,), "float32", name="x")
    func = tvm.te.create_prim_func([x, topi.exp(topi.sum(x, axis=[0]))])
    rule, scheduled = schedule(func)
    assert rule == "FusedRows"
    data = np.random.default_rng(0).random(191, "float32") / 100
    _, got = emulate(scheduled, TARGET, data, np.zeros((), "float32"))
    np.testing.assert_allclose(got, np.exp(data.sum()), rtol=1e-5)


def test_values_spread_from_one_reduction_are_not_computed_by_its_thread():
    x = tvm.te.placeholder((64,), "float32", name="x")
    i = tvm.te.reduce_axis((0, 64), name="i")
    total = tvm.te.compute((1,), lambda j: tvm.te.sum(x[i], axis=[i]), name="total")
    spread = tvm.te.compute((64, 100), lambda a, b: x[a] / total[0], name="spread")
    func = tvm.te.create_prim_func([x, spread])
    with TARGET:
        assert Window().apply(func, TARGET, False) is None


@pytest.mark.parametrize(("shape", "axes"), [((1, 1, 1, 512), [1, 3]), ((3, 700), None)])
def test_one_sum_is_that_of_a_block(shape: tuple[int, ...], axes: list[int] | None) -> None:
    """And not of one thread in device memory."""
    x = tvm.te.placeholder(shape, "float32", name="x")
    func = tvm.te.create_prim_func([x, topi.sum(x, axis=axes, keepdims=True)])
    rule, scheduled = schedule(func)
    assert rule == "RowReduce"
    data = np.random.default_rng(0).random(shape, "float32")
    want = data.sum(tuple(axes) if axes else None, keepdims=True)
    _, got = emulate(scheduled, TARGET, data, np.zeros_like(want))
    np.testing.assert_allclose(got, want, rtol=1e-5)

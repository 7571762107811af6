"""Norms over the last axis: kernels run by emulation against numpy, and what becomes of the
operators, with the casts around them."""

from __future__ import annotations

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_calls import kernel_calls
from tvm import relax

from convoy.graph.function import bindings_of
from convoy.lower.lowered import Lowered
from convoy.lower.passes import to_kernels
from convoy.lower.row_norms import RowNorms
from convoy.tir.row_norms import LONGEST_ROW, RowNorm, Run, kernel

from ..emulation.kernels import emulate
from ..helpers.errors import l2_error

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")
EPSILON = 1e-5


def expected(kind: str, x: np.ndarray, vectors: list[np.ndarray]) -> np.ndarray:
    """The norm in float64."""
    x = x.astype("float64")
    if kind == "layer_norm":
        centred = x - x.mean(1, keepdims=True)
        scale = np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON)
        return centred / scale * vectors[0] + vectors[1]
    if kind == "rms_norm":
        return x / np.sqrt((x**2).mean(1, keepdims=True) + EPSILON) * vectors[0]
    shifted = x - x.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, keepdims=True)
    return shifted - np.log(total) if kind == "log_softmax" else np.exp(shifted) / total


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(["layer_norm", "rms_norm", "softmax", "log_softmax"]),
    size=st.sampled_from(
        [(1, 2), (3, 7), (9001, 5), (197, 49), (17001, 96), (2000, 130), (197, 768), (3, 1000),
         (1030, 1030), (5, 4104), (2, LONGEST_ROW)]
    ),
    dtypes=st.tuples(*[st.sampled_from(["float16", "float32"])] * 2),
    factor=st.sampled_from([1.0, 0.375]),
    backwards=st.booleans(),
)  # fmt: skip
def test_kernels(
    kind: str, size: tuple[int, int], dtypes: tuple[str, str], factor: float, backwards: bool
) -> None:
    rows, columns = size
    norm = RowNorm(kind, rows, columns, *dtypes, EPSILON, factor=factor)
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal((rows, columns)) + 20).astype(dtypes[0])
    vectors = [rng.standard_normal(columns).astype("float32") for _ in range(norm.vectors)]
    y = np.full((rows, columns), np.nan, dtypes[1])
    *_, found = emulate(kernel(norm), TARGET, x, *vectors, y, backwards=backwards)
    exact = expected(kind, factor * x.astype("float64"), vectors)
    assert l2_error(found, exact) < (1e-3 if dtypes[1] == "float16" else 2e-5)


@settings(max_examples=6, deadline=None)
@given(
    run=st.sampled_from([Run(288, 96, 3), Run(72, 8, 1), Run(200, 7, 2)]),
    columns=st.sampled_from([8, 32, 33]),
    kind=st.sampled_from(["layer_norm", "rms_norm"]),
)
def test_rows_that_are_cut_out_of_a_matrix(run: Run, columns: int, kind: str) -> None:
    outer, end = 5, run.offset + run.count * columns
    norm = RowNorm(kind, outer * run.count, columns, "float16", "float32", EPSILON, run)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((outer, run.pitch)).astype("float16")
    vectors = [rng.standard_normal(columns).astype("float32") for _ in range(norm.vectors)]
    y = np.full((norm.rows, columns), np.nan, "float32")
    *_, found = emulate(kernel(norm), TARGET, x, *vectors, y)
    exact = expected(kind, x[:, run.offset : end].reshape(norm.rows, columns), vectors)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)


def queries(begin: int, end: int, axis: int = 2) -> tvm.IRModule:
    """Norms of the rows of a slice of (2, 5, 9, 16)."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 5, 9, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            part = builder.emit(relax.op.strided_slice(x, [axis], [begin], [end]))
            rows = builder.emit(relax.op.reshape(part, (-1, 8)))
            gamma = relax.const(np.ones(8, "float32"))
            out = builder.emit_output(relax.op.nn.rms_norm(rows, gamma, [-1]))
        builder.emit_func_output(out)
    return builder.get()


def test_slices_of_rows_are_read_where_they_lie() -> None:
    for whole in (queries(3, 6), queries(-4, 9), queries(4, 12, 3)):
        assert not any("slice" in name for name in kernels_of(whole))
    assert any("slice" in name for name in kernels_of(queries(2, 14, 3))), "rows of two parts"


@settings(max_examples=200, deadline=None)
@given(rows=st.integers(1, 10**6), columns=st.integers(2, LONGEST_ROW))
def test_blocks_fit_a_gpu(rows: int, columns: int) -> None:
    norm = RowNorm("softmax", rows, columns, "float16", "float16")
    assert 32 <= norm.lanes * norm.parts <= 512, "all lanes of a warp exchange values"
    assert norm.steps * norm.width <= 40, "a thread's elements are in registers"
    assert norm.parts == 1 or norm.lanes <= 32, "rows of several warps meet at barriers alone"


def network(axis: int, columns: int = 64) -> tvm.IRModule:
    """float16 -> float32 -> softmax -> layer norm -> float16, as the precision policy writes it."""
    x = relax.Var("x", relax.TensorType((2, 5, columns), "float16"))
    gamma, beta = (relax.const(np.full(columns, v, "float32")) for v in (1.5, 0.5))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.astype(x, "float32"))
            y = builder.emit(relax.op.nn.softmax(wide, axis))
            y = builder.emit(relax.op.nn.layer_norm(y, gamma, beta, [-1], EPSILON))
            y = builder.emit(relax.op.reshape(y, (10, columns)))
            out = builder.emit_output(relax.op.astype(y, "float16"))
        builder.emit_func_output(out)
    return builder.get()


def kernels_of(mod: tvm.IRModule) -> list[str]:
    with TARGET:
        return kernel_calls(to_kernels(mod))


def test_casts_are_part_of_the_kernels() -> None:
    found = RowNorms()(network(-1))
    calls = [b.value for b in bindings_of(found["main"])]
    types = [c.ty_args[0].dtype for c in calls if c.op.name == "relax.call_tir"]
    assert [str(t) for t in types] == ["float32", "float32"], "the last cast is of a reshape"
    assert kernels_of(network(-1)) == ["softmax", "layer_norm", "cast"]
    assert Lowered.of(network(-1), TARGET).kernels is not None, "CUDA code compiles"


def test_other_axes_and_long_rows_are_left_to_tvm() -> None:
    assert "layer_norm" in kernels_of(network(1))
    assert "softmax" not in kernels_of(network(1))
    assert "fused_cast_softmax" in kernels_of(network(-1, LONGEST_ROW + 1))

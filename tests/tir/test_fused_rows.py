"""Functions of rows and of what they are reduced to, at shapes drawn at random, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te, tirx, topi
from tvm.relax import op

from convoy.tir.fused_rows import FusedRows
from convoy.tir.row_stages_layout import MOST_KEPT, Layout, across_rows, along_columns

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET, Case, cuda_source

Emit = Callable[..., relax.Expr]


def centred(emit: Emit, x: relax.Expr, axes: list[int]) -> relax.Expr:
    return emit(op.subtract(x, emit(op.mean(x, axes, keepdims=True))))


def deviation(emit: Emit, x: relax.Expr, axes: list[int]) -> relax.Expr:
    return emit(op.sqrt(emit(op.variance(x, axes))))


def gated(emit: Emit, x: relax.Expr, axes: list[int]) -> relax.Expr:
    largest = emit(op.max(emit(op.abs(x)), axes, keepdims=True))
    return emit(op.multiply(x, emit(op.sigmoid(largest))))


def softmax(emit: Emit, x: relax.Expr, axes: list[int]) -> relax.Expr:
    return emit(op.nn.softmax(x, axes[0]))


def argmax(emit: Emit, x: relax.Expr, axes: list[int]) -> relax.Expr:
    return emit(op.argmax(x, axes[0]))


def by_softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    e = np.exp(x - x.max(axes[:1], keepdims=True))
    return e / e.sum(axes[:1], keepdims=True)


def by_gate(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return x / (1 + np.exp(-np.abs(x).max(axes, keepdims=True)))


KINDS = {
    centred: lambda x, axes: x - x.mean(axes, keepdims=True),
    deviation: lambda x, axes: x.std(axes),
    gated: by_gate,
    softmax: by_softmax,
    argmax: lambda x, axes: x.argmax(axes[0]),
}


@dataclass(frozen=True)
class Drawn:
    kind: Callable[..., relax.Expr]
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def case(self) -> Case:
        def build(emit: Emit, x: relax.Expr) -> relax.Expr:
            return self.kind(emit, x, list(self.axes))

        return Case(self.kind.__name__, [self.shape], ["float32"], build, "FusedRows")


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    rank = draw(st.integers(1, 4))
    most = {1: 3000, 2: 400, 3: 40, 4: 12}[rank]
    shape = tuple(draw(st.integers(1, most)) for _ in range(rank))
    axes = draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank))
    return Drawn(draw(st.sampled_from([*KINDS])), shape, tuple(sorted(axes)))


def kernel(one: Drawn) -> tirx.PrimFunc | None:
    """The scheduled kernel, if the rule takes it."""
    functions = [f for f in one.case.fused().functions.values() if isinstance(f, tirx.PrimFunc)]
    if len(functions) != 1:  # of one element each
        return None
    with TARGET:
        found = FusedRows().apply(functions[0], TARGET, False)
    return None if found is None else found.mod["main"]


@settings(max_examples=3)
@given(st.lists(drawn(), min_size=12, max_size=12))
def test_against_float64(cases: list[Drawn]) -> None:
    kernels = {f"rows_{i}": (one, kernel(one)) for i, one in enumerate(cases)}
    kernels = {name: pair for name, pair in kernels.items() if pair[1] is not None}
    if not kernels:
        return
    library = compile_kernels({name: func for name, (_, func) in kernels.items()}, TARGET)
    rng = np.random.default_rng(0)
    for name, (one, func) in kernels.items():
        x = rng.standard_normal(one.shape, "float32")
        want = np.asarray(KINDS[one.kind](x.astype("float64"), one.axes))
        result = func.params[-1]
        empty = np.full([int(d) for d in result.shape], 77, str(result.dtype))
        for backwards in (False, True):
            *_, got = call(library[name], x, empty, backwards=backwards)
            np.testing.assert_allclose(
                got, want.reshape(got.shape), rtol=1e-5, atol=1e-5, err_msg=str(one)
            )


@pytest.mark.parametrize(
    ("kind", "shape", "axes", "threads", "pieces"),
    [
        (centred, (1576, 768), (1,), 128, 12),  # a warp a row, four a block
        (deviation, (25088, 96), (1,), 128, 6),  # eight rows a warp
        (softmax, (8, 197, 768), (1,), 128, None),  # neighbouring rows
        (centred, (2, 9000), (1,), 512, None),  # several warps a row
        (argmax, (197, 768), (1,), 32, 6),
    ],
)
def test_threads(
    kind: Callable[..., relax.Expr], shape: tuple[int, ...], axes: tuple[int, ...], threads: int,
    pieces: int | None,
) -> None:  # fmt: skip
    func = kernel(Drawn(kind, shape, axes))
    assert func is not None
    source = cuda_source(func)
    assert f"__launch_bounds__({threads})" in source
    if pieces is not None:  # each element is read once, 16 bytes at a time
        assert source.count("*(float4*)") == 2 * pieces, source  # from and to registers


def test_rows_of_a_half_warp_need_no_barrier() -> None:
    func = kernel(Drawn(deviation, (3136, 96), (1,)))
    assert func is not None and "__syncthreads" not in cuda_source(func)
    func = kernel(Drawn(deviation, (96, 3136), (0,)))
    assert func is not None and "__syncthreads" in cuda_source(func)


@given(st.integers(1, 1 << 20), st.integers(2, 1 << 16), st.sampled_from([1, 2, 4, 8]))
def test_layouts(rows: int, columns: int, width: int) -> None:
    for layout in (
        along_columns(rows, columns * width, width, 2),
        across_rows(rows * width, columns, width, 2),
    ):
        check(layout)


def check(layout: Layout) -> None:
    """Whole warps, of which the threads of a row are consecutive; every row and element once."""
    assert layout.threads % 32 == 0 and layout.threads <= 1024
    assert layout.lanes & (layout.lanes - 1) == 0 and layout.beside & (layout.beside - 1) == 0
    assert layout.parts == 1 or layout.lanes * layout.beside <= 32
    assert layout.blocks * layout.parts * layout.beside >= layout.groups
    assert layout.steps * layout.lanes * layout.width >= layout.columns
    assert layout.groups * layout.own == layout.rows
    assert layout.vectors * layout.width == layout.columns
    assert layout.warps == 1 or layout.threads == 32 * layout.warps
    assert layout.kept <= MOST_KEPT or math.prod((layout.lanes, layout.beside)) > 32


def test_sums_that_are_reduced_once_more_are_no_rows() -> None:
    """As many rows as columns: axes of the same length are not the same axis."""
    x = te.placeholder((40, 40), "float32", name="x")
    func = te.create_prim_func([x, topi.nn.softmax(topi.sum(x, axis=[0]), axis=0)])
    with TARGET:
        assert FusedRows().apply(func, TARGET, False) is None

"""Reductions of any shape keep a whole GPU busy, and are what they were."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tvm_ffi
from tests.helpers.kernel_calls import kernel_calls
from tvm import relax, tirx
from tvm.relax import op

from convoy.lower.passes import kernel_passes
from convoy.lower.split_reductions import SplitReductions
from convoy.tir.rules import schedule_kernels

from ..graph.kernels import TARGET, Case
from ..graph.nets import run_llvm

#: Elements that a thread may read one after the other: those of a short reduction, and its share of
#: a large one with one block of 256 threads on each SM.
SHORT, THREADS = 64, 132 * 256
LONGEST = 4_000_000

SHAPES = [
    shape
    for shape in itertools.product((1, 8, 64, 5000), (3, 49, 784, 3136, 100000), (1, 7, 48, 2048))
    if math.prod(shape) <= LONGEST
]
REDUCTIONS: dict[str, Callable[..., relax.Expr]] = {
    "sum": op.sum, "mean": op.mean, "max": op.max, "min": op.min,
}  # fmt: skip


def reduction(kind: str, shape: tuple[int, ...], axes: list[int] | None, squared: bool) -> Case:
    def build(emit, x):  # type: ignore[no-untyped-def]
        if squared:
            x = emit(op.astype(x, "float32"))
            x = emit(op.multiply(x, x))
        return emit(REDUCTIONS[kind](x, axes))

    return Case(kind, [shape], ["float16"], build, "")


def kernels(case: Case) -> Iterator[tuple[str, int, int]]:
    """(name, threads, elements of the largest operand) of each kernel."""
    with TARGET:
        mod = case.module()
        for step in kernel_passes():
            mod = step(mod)
    used = kernel_calls(mod)
    for var, func in schedule_kernels(TARGET)(mod).functions_items():
        if not isinstance(func, tirx.PrimFunc) or var.name_hint not in used:
            continue
        extents: dict[str, int] = {}

        def visit(loop: tirx.For, extents: dict[str, int] = extents) -> None:
            if loop.kind == tirx.ForKind.THREAD_BINDING:
                extents[str(loop.thread_binding.thread_tag)] = int(loop.extent)

        tvm_ffi.structural_walk(func.body, [(tirx.For, visit)])
        sizes = [math.prod(map(int, p.shape)) for p in func.params if hasattr(p.ty, "shape")]
        yield var.name_hint, math.prod(extents.values()), max(sizes)


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("squared", [False, True], ids=["alone", "squared"])
def test_every_shape_has_many_threads(kind: str, squared: bool) -> None:
    for shape in SHAPES:
        found = list(kernels(reduction(kind, shape, [1], squared)))
        assert 1 <= len(found) <= 2
        for name, threads, elements in found:
            share = max(SHORT, 4 * elements / THREADS)
            assert elements / threads <= share, (shape, name, threads, elements)


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 5000, 9), [1]), ((3, 70, 60, 8), [1, 2]), ((2, 9001, 8), [1]), ((40, 1, 500), None),
        ((20011,), [0]), ((50, 8, 400), [0, 2]), ((1, 30000, 1), [1, 2]), ((4, 20000), [-1]),
    ],
)  # fmt: skip
def test_parts_add_up(kind: str, shape: tuple[int, ...], axes: list[int] | None) -> None:
    """Of divisible sizes and of primes, with what is computed in front of them."""
    case = reduction(kind, shape, axes, squared=True)
    with TARGET:
        mod = SplitReductions()(case.module())
    assert not tvm_ffi.structural_equal(mod, case.module())
    (x,) = case.inputs()
    (found,) = run_llvm(mod, x)
    wide = x.astype("float64") ** 2
    along = tuple(axes) if axes else None
    want = getattr(np, kind)(wide, axis=along)
    np.testing.assert_allclose(found, want, rtol=1e-4)


def test_what_others_read_is_computed_once() -> None:
    """It is not computed again in the kernel of the reduction."""

    def build(emit, x):  # type: ignore[no-untyped-def]
        y = emit(op.exp(x))
        total = emit(op.sum(y, [0]))
        return emit(op.divide(y, total))

    case = Case("", [(20000, 3)], ["float32"], build, "")
    names = [name for name, _, _ in kernels(case)]
    assert sum("exp" in name for name in names) == 1, names


def test_other_operands_are_split_alike() -> None:
    """Along the axis, spread over it, and without it."""

    def build(emit, x, a, b, c):  # type: ignore[no-untyped-def]
        y = emit(op.multiply(emit(op.add(emit(op.multiply(x, a)), b)), c))
        return emit(op.sum(y, [1]))

    shapes = [(2, 6000, 8), (6000, 1), (2, 1, 8), (8,)]
    case = Case("", shapes, ["float32"] * 4, build, "")
    with TARGET:
        mod = SplitReductions()(case.module())
    inputs = case.inputs()
    x, a, b, c = (array.astype("float64") for array in inputs)
    np.testing.assert_allclose(
        run_llvm(mod, *inputs)[0], ((x * a + b) * c).sum(1), rtol=1e-3, atol=0.1
    )
    assert len(list(kernels(case))) == 2


def test_values_of_integers_stay() -> None:
    x = relax.Var("x", relax.TensorType((100000,), "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.sum(x))
        builder.emit_func_output(y)
    mod = builder.get()
    assert tvm_ffi.structural_equal(SplitReductions()(mod), mod)

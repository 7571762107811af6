"""Concatenations of parts that are permutations, and those that are not."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.function import calls_of
from convoy.normalize.moved_parts import RecognizeMovedParts

from ..graph.kernels import Case
from ..graph.nets import run_llvm

CONCAT = frozenset({"relax.concat"})
SHAPE = (2, 6, 4, 3)


def rewritten(build):  # type: ignore[no-untyped-def]
    """Whether a concatenation is gone; its values are the same in any case."""
    case = Case("", [SHAPE], ["float32"], build, "")
    mod = RecognizeMovedParts()(case.module())
    (x,) = case.inputs()
    np.testing.assert_array_equal(run_llvm(mod, x)[0], run_llvm(case.module(), x)[0])
    return not calls_of(mod, CONCAT)


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("to", [0, 2, 3, -1])
def test_parts_of_a_split(count: int, to: int) -> None:
    def build(emit, x):  # type: ignore[no-untyped-def]
        parts = emit(op.split(x, count, axis=1))
        fields = [emit(relax.TupleGetItem(parts, i)) for i in range(count)]
        return emit(op.concat(fields, axis=to))

    assert rewritten(build)


@pytest.mark.parametrize("to", [1, 3])
def test_parts_in_front_of_their_axis_and_behind(to: int) -> None:
    def build(emit, x):  # type: ignore[no-untyped-def]
        first = emit(op.strided_slice(x, [2], [-4], [-2]))
        last = emit(op.strided_slice(x, [2], [-2], [4]))
        return emit(op.concat([first, last], axis=to))

    assert rewritten(build)


@pytest.mark.parametrize(
    "bounds",
    [
        [(3, 6), (0, 3)],  # in another order
        [(0, 3), (2, 5)],  # overlapping
        [(0, 2), (2, 4)],  # without the last ones
    ],
)
def test_other_parts_stay(bounds: list[tuple[int, int]]) -> None:
    def build(emit, x):  # type: ignore[no-untyped-def]
        fields = [emit(op.strided_slice(x, [1], [a], [b])) for a, b in bounds]
        return emit(op.concat(fields, axis=2))

    assert not rewritten(build)


def test_parts_of_several_tensors_and_of_their_own_axis_stay() -> None:
    def several(emit, x):  # type: ignore[no-untyped-def]
        y = emit(op.negative(x))
        fields = [emit(op.strided_slice(v, [1], [i], [i + 3])) for v, i in ((x, 0), (y, 3))]
        return emit(op.concat(fields, axis=2))

    def same_axis(emit, x):  # type: ignore[no-untyped-def]
        fields = [emit(op.strided_slice(x, [1], [i], [i + 3])) for i in (0, 3)]
        return emit(op.concat(fields, axis=1))

    assert not rewritten(several) and not rewritten(same_axis)

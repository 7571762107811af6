"""Sums of overlapping patches against their definition, as loops and as kernels for a GPU."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.function import calls_of
from convoy.ir.device import Device
from convoy.normalize.overlapping_patches import RecognizeFolds
from convoy.ops.fold import FOLD, Axis, fold
from convoy.pipeline import place

from ..emulation.network import Emulation
from ..graph.kernels import Case
from ..graph.nets import relative_error, run_llvm


def added_up(x: np.ndarray, size, strides, padding, dilation) -> np.ndarray:  # type: ignore[no-untyped-def]
    """(n, patches..., taps..., c) -> (n, *size, c), patch by patch."""
    rank = len(size)
    image = np.zeros((x.shape[0], *size, x.shape[-1]))
    for index in itertools.product(*map(range, x.shape[1:-1])):
        patch, tap = index[:rank], index[rank:]
        place = [patch[i] * strides[i] + tap[i] * dilation[i] - padding[i] for i in range(rank)]
        if all(0 <= at < size[i] for i, at in enumerate(place)):
            image[(slice(None), *place)] += x[(slice(None), *index)]
    return image


@st.composite
def patches(draw: st.DrawFn, rank: int) -> tuple[Axis, ...]:
    numbers = (st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
    return tuple(Axis(*map(draw, numbers), draw(st.integers(1, 4))) for _ in range(rank))


def sizes(axes: tuple[Axis, ...]) -> list[int]:
    """Of an image that the patches cover, and one row that they do not."""
    ends = ((a.count - 1) * a.stride + (a.taps - 1) * a.dilation - 2 * a.padding for a in axes)
    return [max(1, end + 2) for end in ends]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_stride_padding_and_dilation(data: st.DataObject) -> None:
    axes = data.draw(patches(data.draw(st.integers(1, 3))))
    size, given = sizes(axes), ([getattr(a, name) for a in axes] for name in Axis.__annotations__)
    counts, taps, *options = given
    shape = (2, *counts, *taps, 3)
    case = Case("fold", [shape], ["float32"], lambda e, x: e(fold(x, size, *options)), "")
    (x,) = case.inputs()
    (found,) = run_llvm(case.module(), x)
    np.testing.assert_allclose(found, added_up(x, size, *options), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "counts", "taps", "stride", "launches"),
    [
        ((8, 8), (4, 4), (3, 3), 2, 1),  # VOLO's
        ((8, 12), (2, 3), (4, 4), 4, 1),  # patches that do not overlap
        ((12, 12), (12, 12), (7, 7), 1, 2),  # too many to write out: the permutation is apart
    ],
)
def test_kernels(size, counts, taps, stride, launches) -> None:  # type: ignore[no-untyped-def]
    """In 16 bit, with sums in float32."""
    padding, c = [(taps[i] - stride + 1) // 2 for i in range(2)], 16
    options = (size, (stride, stride), padding, (1, 1))

    def build(emit, x):  # type: ignore[no-untyped-def]
        x = emit(op.reshape(x, (1, *counts, *taps, c)))
        return emit(op.permute_dims(emit(fold(x, *options)), [0, 3, 1, 2]))

    shape = (1, math.prod(counts), math.prod(taps), c)
    case = Case("fold", [shape], ["float16"], build, "")
    emulation = Emulation(place(case.module(), device=Device(), measure=False))
    assert len(emulation.schedule.ops) == launches
    (x,) = case.inputs()
    want = added_up(x.reshape(1, *counts, *taps, c).astype("float64"), *options)
    (found,) = emulation(x, seed=1)
    assert relative_error(found.astype("float32"), want.transpose(0, 3, 1, 2)) < 1e-3


def transposed(filters: np.ndarray, groups: int, shape=(1, 12, 3, 3)):  # type: ignore[no-untyped-def]
    def build(emit, x):  # type: ignore[no-untyped-def]
        attrs = {"strides": (2, 2), "padding": (1, 0), "groups": groups, "output_padding": (1, 0)}
        return emit(op.nn.conv2d_transpose(x, relax.const(filters.astype("float32")), **attrs))

    return Case("", [shape], ["float32"], build, "")


@pytest.mark.parametrize(
    ("filters", "groups"),
    [
        (np.tile(np.eye(6).reshape(6, 1, 2, 3), (2, 1, 1, 1)), 2),  # a filter for each channel
        (np.eye(12).reshape(12, 2, 2, 3), 1),  # one for all of them
    ],
)
def test_filters_that_only_move_are_folds(filters: np.ndarray, groups: int) -> None:
    case = transposed(filters, groups)
    mod = RecognizeFolds()(case.module())
    assert len(calls_of(mod, frozenset({FOLD}))) == 1
    (x,) = case.inputs()
    np.testing.assert_allclose(run_llvm(mod, x)[0], run_llvm(case.module(), x)[0], rtol=1e-5)


@pytest.mark.parametrize("filters", [np.eye(12)[::-1], 2 * np.eye(12), np.ones((12, 12))])
def test_other_filters_stay(filters: np.ndarray) -> None:
    mod = RecognizeFolds()(transposed(filters.reshape(12, 2, 2, 3), 1).module())
    assert not calls_of(mod, frozenset({FOLD}))

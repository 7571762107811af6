"""Views as offsets and strides, against NumPy's own."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from convoy.partition.patterns.base import GraphView
from convoy.partition.patterns.sources import sources
from convoy.partition.patterns.strided import Strided, common, joined


def elements(view: Strided) -> np.ndarray:
    """Index of each element of a view in its tensor."""
    index = np.full((), view.offset)
    for factors in view.dims:
        for extent, stride in factors:
            index = index[..., None] + np.arange(extent) * stride
    return index.reshape(view.shape)


@given(st.data())
def test_any_chain_of_views(data):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    view, wanted = Strided.compact(shape), np.arange(math.prod(shape)).reshape(shape)
    for _ in range(data.draw(st.integers(0, 6))):
        kind = data.draw(st.sampled_from(["permute", "reshape", "slice", "take", "spread"]))
        if kind == "permute":
            axes = data.draw(st.permutations(range(wanted.ndim)))
            view, wanted = view.permuted(axes), wanted.transpose(axes)
        elif kind == "reshape":
            factor = data.draw(st.sampled_from([1, 2, 3, 6]))
            new = (factor, -1) if wanted.size % factor == 0 else (-1,)
            wanted = wanted.reshape(new)
            reshaped = view.reshaped(wanted.shape)
            if reshaped is None:
                return
            view = reshaped
        elif kind == "spread":
            wanted = np.broadcast_to(wanted, (2, *wanted.shape))
            view = view.spread(wanted.shape)
        else:
            axis = data.draw(st.integers(0, wanted.ndim - 1))
            begin = data.draw(st.integers(0, wanted.shape[axis] - 1))
            if kind == "take" and wanted.ndim > 1:
                cut, wanted = view.taken(axis, begin), wanted.take(begin, axis)
            else:
                extent = data.draw(st.integers(1, wanted.shape[axis] - begin))
                step = data.draw(st.integers(1, 2))
                extent = (extent - 1) // step + 1
                cut = view.sliced(axis, begin, extent, step)
                kept = range(begin, begin + extent * step, step)
                wanted = wanted.take(kept, axis)
            if cut is None:
                return
            view = cut
        assert view.shape == wanted.shape
        assert np.array_equal(elements(view), wanted)
    flat = Strided(tuple(map(joined, view.dims)), view.offset)
    assert np.array_equal(elements(flat), wanted)


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.randoms())
def test_batches_in_common(extents, random):
    """The same batch axes, cut and merged in different ways, with strides of their own."""
    whole = Strided.compact(extents)
    other = Strided.compact(extents[::-1]).permuted(range(len(extents))[::-1])
    merged = whole.reshaped((math.prod(extents),))
    lists = [tuple(f for d in view.dims for f in d) for view in (whole, other, merged)]
    random.shuffle(lists)
    shared = common(lists)
    assert shared is not None and len(shared) <= len(extents)
    for i, factors in enumerate(lists):
        ours = Strided((tuple((extent, strides[i]) for extent, strides in shared),))
        assert np.array_equal(elements(ours), elements(Strided((factors,))))


def test_batches_without_a_common_form():
    assert common([((2, 3), (3, 1)), ((3, 2), (2, 1))]) is None
    assert common([((4, 1),), ((2, 1),)]) is None


def test_a_clipped_index_is_not_counted_from_the_end():
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 4), "float32"))
    with bb.function("main", [x]):
        last, clipped = (
            bb.emit(relax.op.take(x, relax.const(at, "int64"), axis=0, mode="clip"))
            for at in (2, -1)
        )
        bb.emit_func_output(bb.emit(relax.op.add(last, clipped)))
    graph = GraphView(bb.get()["main"])
    assert elements(sources(graph, last)[0].layout).tolist() == [8, 9, 10, 11]
    assert [source.tensor for source in sources(graph, clipped)] == [clipped]

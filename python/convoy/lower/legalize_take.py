"""Takes with constant indices as arithmetic of places where they follow a rule, so that what stands
before and behind becomes one kernel that moves vectors: crops, rolls, and padding by reflection and
by the edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tvm import relax, te, tirx

from ..graph.expr import as_numpy, call_like, is_const, is_tensor, make_const, rank_of, shape_of
from .default import default_legalize

#: From a place in the result to one in the operand.
Place = Callable[[tirx.Expr], tirx.Expr]
_INJECTIVE = {"op_pattern": 2}


def take(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Lower constant indices inside of the operand; all else is TVM's."""
    x, index = call.args
    if not is_const(index) or rank_of(index) > 1 or call.attrs.axis is None or not is_tensor(x):
        return _clipped(bb, call)
    axis = int(call.attrs.axis) % rank_of(x)
    size, places = shape_of(x)[axis], as_numpy(index).astype("int64").reshape(-1)
    if str(call.attrs.mode) == "fast":  # negative ones count from the end
        places = places + size * (places < 0)
    if not places.size or places.min() < 0 or places.max() >= size:
        return _clipped(bb, call)
    found = next(_rules(places, size), None)
    kept = rank_of(index)

    def taken(x: te.Tensor, *table: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Expr) -> tirx.Expr:
            own = at[axis] if kept else 0
            place = table[0](*[own] * kept) if found is None else found(own)
            return x(*at[:axis], place, *at[axis + kept :])

        shape = [*x.shape[:axis], *[len(places)] * kept, *x.shape[axis + 1 :]]
        return te.compute(shape, element, "take")

    args = [x] if found else [x, make_const(places.reshape(shape_of(index)))]
    return bb.call_te(taken, *args, primfunc_name_hint="take", primfunc_attrs=_INJECTIVE)


def _rules(places: np.ndarray, size: int) -> Iterator[Place]:
    """Rules by which the indices can be computed, the simplest first.

    None takes a remainder: TVM's simplification of the indices of a kernel confuses the remainders
    of two sums of axes, those of an image that is rolled along both of its axes.
    """
    numbers, last, first = np.arange(len(places)), size - 1, int(places[0])
    repeated = int((places == first).argmin()) - 1  # by how many the first index is too far left
    if first + len(places) <= size and (places == numbers + first).all():
        yield lambda i: i + first
    if first + len(places) <= 2 * size and (places == (numbers + first) % size).all():
        yield lambda i: i + first - size * tirx.min(tirx.max(i + (first - last), 0), 1)
    if (places == np.clip(numbers - repeated, 0, last)).all():
        yield lambda i: tirx.min(tirx.max(i - repeated, 0), last)
    if (places == last - abs(last - abs(numbers - first))).all():
        yield lambda i: last - _absolute(last - _absolute(i - first))


def _absolute(value: tirx.Expr) -> tirx.Expr:
    return tirx.max(value, 0 - value)


def _clipped(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Clip indices that may be out of bounds. TVM would read out of bounds, and print a warning for
    each call."""
    if str(call.attrs.mode) == "fast":
        call = call_like(call, list(call.args), mode="clip")
    return default_legalize(bb, call)

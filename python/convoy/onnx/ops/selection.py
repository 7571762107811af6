"""Masked assignments and reductions, by NonZero, GatherND and ScatterND

PyTorch exports ``x[mask] = f(x[mask])`` so. An elementwise ``f`` can be computed of all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import UnsupportedOp
from ..call import Call, Value, converter
from ..selected import COUNT, Selected, Sizes
from .refused import sized_by_data
from .selection_reductions import reduced
from .selection_sizes import counted, of_sizes, unexpanded

#: Elements of a mask whose places are listed, at most.
_MOST = 1 << 22
_ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mish", "Mod", "Mul", "Neg", "Not",
    "Or", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Where", "Xor",
))  # fmt: skip


@converter("NonZero")
def non_zero(call: Call) -> Value:
    """The places of true elements, of which masked assignments alone can be converted."""
    try:
        sized_by_data(call)
    except UnsupportedOp as err:
        error = err
    shape = call.shape()
    if not shape or math.prod(shape) > _MOST:
        raise error
    mask = call.cast(call.value(0), "bool")
    return Selected(mask, 1, _places(shape), error, source=call.sources[0] if call.sources else "")


def is_selection(call: Call) -> bool:
    """Whether a call takes values whose size depends on data, or expands to such a size."""
    if any(isinstance(value, Selected | Sizes) for value in call.inputs):
        return True
    return call.op == "Expand" and counted(call) is not None


def convert(call: Call) -> Value:
    """The value of a call that takes values whose size depends on data.

    Raises:
        UnsupportedOp: It is no part of a masked assignment.
    """
    if call.op == "Expand" and (sizes := counted(call)) is not None:
        call = replace(call, inputs=[call.inputs[0], sizes])
    unsized = [value for value in call.inputs if isinstance(value, Selected | Sizes)]
    first = next((value for value in unsized if isinstance(value, Selected)), unsized[0])
    rule = _RULES.get(call.op)
    if call.op in _ELEMENTWISE and isinstance(first, Selected):
        rule = _elementwise
    if isinstance(call.inputs[0], Sizes) or (not isinstance(first, Selected) and rule is None):
        rule = of_sizes
    flat = any(isinstance(value, Selected) and value.behind for value in unsized)
    if flat and call.op != "ScatterND":
        raise first.error
    found = rule(call, first) if rule is not None else None
    if found is None:
        raise first.error
    return found


def _places(shape: tuple[int, ...]) -> np.ndarray:
    """The places of all elements as NonZero gives them, (axes, elements)."""
    return np.indices(shape, "int64").reshape(len(shape), -1)


def _shape(call: Call, value: Value) -> tuple[int, ...]:
    return Call(call.importer, "Identity", [value], {}).shape()


def _apply(call: Call, *inputs: Value) -> Value:
    return call.importer.call(replace(call, inputs=inputs))


def _is_same_mask(call: Call, first: Selected) -> bool:
    unsized = (value for value in call.inputs if isinstance(value, Selected | Sizes))
    return all(value.mask is first.mask for value in unsized)


def _elementwise(call: Call, first: Selected) -> Value:
    """Of all rows. Operands with one row for all are broadcast, as they are without a mask."""
    rank = len(_shape(call, first.value))
    for value in call.inputs:
        if isinstance(value, Sizes):
            return None
        if isinstance(value, Selected):
            same = value.axis == first.axis and len(_shape(call, value.value)) == rank
            if not same or value.mask is not first.mask:
                return None
        elif value is not None:
            shape = _shape(call, value)
            place = first.axis - rank + len(shape)
            if len(shape) > rank or (place >= 0 and shape[place] != 1):
                return None
    values = [value.value if isinstance(value, Selected) else value for value in call.inputs]
    return replace(first, value=_apply(call, *values))


def _shape_of(call: Call, first: Selected) -> Value:
    shape = list(_shape(call, first.value))
    shape[first.axis] = COUNT
    part = slice(call.attrs.get("start", 0), call.attrs.get("end"))
    array = np.array(shape[part], "int64")
    return Sizes(first.mask, array, first.error) if COUNT in array else array


def _transpose(call: Call, first: Selected) -> Value:
    rank = len(_shape(call, first.value))
    order = [int(axis) for axis in call.attrs.get("perm", range(rank)[::-1])]
    return replace(first, axis=order.index(first.axis), value=_apply(call, first.value))


def _unsqueeze(call: Call, first: Selected) -> Value:
    axes = call.ints("axes", 1) or []
    rank = len(_shape(call, first.value)) + len(axes)
    kept = [axis for axis in range(rank) if axis not in [one % rank for one in axes]]
    return replace(first, axis=kept[first.axis], value=_apply(call, first.value, *call.inputs[1:]))


def _squeeze(call: Call, first: Selected) -> Value:
    axes, rank = call.ints("axes", 1), len(_shape(call, first.value))
    if axes is None or first.axis in (left := [axis % rank for axis in axes]):
        return None
    axis = first.axis - sum(one < first.axis for one in left)
    return replace(first, axis=axis, value=_apply(call, first.value, *call.inputs[1:]))


def _split(call: Call, first: Selected) -> Value:
    if int(call.attrs.get("axis", 0)) % len(_shape(call, first.value)) == first.axis:
        return None
    parts = _apply(call, first.value, *call.inputs[1:])
    return tuple(replace(first, value=part) for part in parts)


def _concat(call: Call, first: Selected) -> Value:
    same = all(isinstance(one, Selected) and one.axis == first.axis for one in call.inputs)
    if not same or not _is_same_mask(call, first):
        return None
    if int(call.attrs["axis"]) % len(_shape(call, first.value)) == first.axis:
        return None
    return replace(first, value=_apply(call, *(one.value for one in call.inputs)))


def _slice(call: Call, first: Selected) -> Value:
    """All rows, up to the last, or a part of another axis."""
    bounds = [one.array if isinstance(one, Sizes) else one for one in call.inputs[1:]]
    known = len(bounds) >= 3 and all(isinstance(one, np.ndarray) for one in bounds)
    if not known or not isinstance(call.inputs[0], Selected) or not _is_same_mask(call, first):
        return None
    starts, ends, axes, *steps = ([int(i) for i in one] for one in bounds)
    if [axis % len(_shape(call, first.value)) for axis in axes] != [first.axis]:
        sliced = first.axis in axes or COUNT in ends or min(axes) < 0
        return None if sliced else replace(first, value=_apply(call, first.value, *bounds))
    whole = starts == [0] and ends[0] >= COUNT and steps in ([], [[1]])
    return first if whole else None


def _reshape(call: Call, first: Selected) -> Value:
    """The axes behind the rows, also as further rows."""
    target, data = call.inputs[1], call.inputs[0]
    wanted = target.array if isinstance(target, Sizes) else target
    if not isinstance(data, Selected) or data.axis or not isinstance(wanted, np.ndarray):
        return None
    rows, *before = _shape(call, data.value)
    count, *behind = map(int, wanted)
    if count not in (-1, COUNT) or any(size < 1 for size in behind):
        return None
    if (count, behind) == (-1, []) and math.prod(before) != 1:
        return replace(data, value=call.reshape(data.value, (-1,)), behind=tuple(before))
    if math.prod(before) != math.prod(behind):
        return None
    return replace(data, value=call.reshape(data.value, (rows, *behind)))


def _expand(call: Call, first: Selected | Sizes) -> Value:
    """One row, or rows of one element, to as many rows as a mask has true elements."""
    data, target = call.inputs
    if not isinstance(target, Sizes) or list(target.array).count(COUNT) != 1:
        return None
    axis = list(target.array).index(COUNT)
    value = data.value if isinstance(data, Selected) else data
    shape = _shape(call, value)
    place = axis - len(target.array) + len(shape)
    if len(shape) > len(target.array):
        return None
    if isinstance(data, Selected):
        if data.axis != place or data.mask is not target.mask:
            return None
    elif place >= 0 and shape[place] != 1:
        return None
    sizes = [int(size) for size in target.array]
    sizes[axis] = math.prod(_shape(call, target.mask))
    if isinstance(value, np.ndarray):
        full = np.broadcast_to(value, np.broadcast_shapes(value.shape, tuple(sizes)))
    else:
        full = call.do("Expand", value, np.array(sizes))
    return Selected(target.mask, axis, full, target.error)


def _gather(call: Call, first: Selected) -> Value:
    """What a mask of the leading axes selects."""
    data, places = call.inputs
    if isinstance(data, Selected | Sizes) or not _is_everywhere(call, places):
        return None
    sizes, masked = call.shape(), _shape(call, places.mask)
    if call.attrs.get("batch_dims", 0) or sizes[: len(masked)] != masked:
        return None
    rows = call.reshape(data, (math.prod(masked), *sizes[len(masked) :]))
    return replace(places, axis=0, value=rows)


def _scatter(call: Call, first: Selected) -> Value:
    """The updates where the mask is true."""
    data, places, updates = call.inputs
    if isinstance(data, Selected | Sizes) or not _is_everywhere(call, places):
        return None
    sizes, masked = call.shape(), _shape(call, places.mask)
    plain = call.attrs.get("reduction", "none") == "none" and sizes[: len(masked)] == masked
    if not plain or not isinstance(updates, Selected) or updates.axis:
        return None
    rows = updates.mask is places.mask and not updates.behind
    if _is_uniform(updates.value):
        value: Value = updates.value.flat[0].reshape((1,) * len(sizes))
    elif rows or _is_leading(call, updates, places):
        value = call.reshape(updates.value, sizes)
    else:
        return None
    where = call.reshape(places.mask, (*masked, *(1,) * (len(sizes) - len(masked))))
    return call.do("Where", where, value, data)


def _is_everywhere(call: Call, places: Value) -> bool:
    """Whether places are those of a mask, in order, (elements, axes)."""
    if not isinstance(places, Selected) or places.axis or not isinstance(places.value, np.ndarray):
        return False
    return np.array_equal(places.value, _places(_shape(call, places.mask)).T)


def _is_leading(call: Call, updates: Selected, places: Selected) -> bool:
    """Whether places are of all elements behind the rows of updates, which are laid out flat."""
    shape = (*_shape(call, updates.mask), *updates.behind)
    same = updates.mask is unexpanded(call, places.source)
    return same and shape == _shape(call, places.mask)


def _is_uniform(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.size > 0 and bool((value == value.flat[0]).all())


_RULES: dict[str, Callable[[Call, Any], Value]] = {
    "Concat": _concat,
    "Expand": _expand,
    "GatherND": _gather,
    "ReduceMax": reduced,
    "ReduceMean": reduced,
    "ReduceMin": reduced,
    "ReduceSum": reduced,
    "Reshape": _reshape,
    "ScatterND": _scatter,
    "Shape": _shape_of,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

"""Sequences and optional values: known lists while a model is read, nothing when it runs."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter


def _list(call: Call, index: int = 0) -> list[Value]:
    value = call.inputs[index]
    if not isinstance(value, list):
        raise call.unsupported("of a value that is no known sequence", "a sequence")
    return value


def _position(call: Call, index: int, length: int) -> int:
    position = int(call.constant(index, "position").reshape(-1)[0])
    return position + length if position < 0 else position


@converter("SequenceConstruct")
def sequence_construct(call: Call) -> Value:
    return list(call.inputs)


@converter("SequenceEmpty")
def sequence_empty(call: Call) -> Value:
    return []


@converter("SequenceAt")
def sequence_at(call: Call) -> Value:
    values = _list(call)
    position = _position(call, 1, len(values))
    if not 0 <= position < len(values):
        raise call.unsupported(f"at {position} of {len(values)}", "a position inside")
    return values[position]


@converter("SequenceInsert")
def sequence_insert(call: Call) -> Value:
    values = _list(call)
    position = _position(call, 2, len(values)) if call.has(2) else len(values)
    return [*values[:position], call.inputs[1], *values[position:]]


@converter("SequenceErase")
def sequence_erase(call: Call) -> Value:
    values = _list(call)
    position = _position(call, 1, len(values)) if call.has(1) else len(values) - 1
    return [value for i, value in enumerate(values) if i != position]


@converter("SequenceLength")
def sequence_length(call: Call) -> Value:
    return np.array(len(_list(call)), "int64")


@converter("ConcatFromSequence")
def concat_from_sequence(call: Call) -> Value:
    values, axis = _list(call), int(call.attrs["axis"])
    if call.attrs.get("new_axis", 0):
        values = [call.do("Unsqueeze", value, np.array([axis])) for value in values]
    return call.do("Concat", *values, axis=axis)


@converter("SplitToSequence")
def split_to_sequence(call: Call) -> Value:
    axis = call.axis(0)
    size = call.shape()[axis]
    if not call.has(1):
        sizes = [1] * size
    else:
        split = call.constant(1, "split")
        if split.ndim:
            sizes = [int(n) for n in split]
        else:
            each = int(split)
            sizes = [min(each, size - first) for first in range(0, size, each)]
    ends = np.cumsum(sizes)
    parts = [
        call.do("Slice", call.value(0), np.array([end - n]), np.array([end]), np.array([axis]))
        for n, end in zip(sizes, ends, strict=True)
    ]
    if not call.has(1) and not call.attrs.get("keepdims", 1):
        parts = [call.do("Squeeze", part, np.array([axis])) for part in parts]
    return parts


@converter("Optional", "OptionalGetElement")
def optional(call: Call) -> Value:
    if not call.inputs or call.inputs[0] is None:
        if call.op == "Optional":
            return None
        raise call.unsupported("of an empty optional", "a value")
    return call.inputs[0]


@converter("OptionalHasElement")
def optional_has_element(call: Call) -> Value:
    return np.array(bool(call.inputs) and call.inputs[0] is not None)

"""Slices, splits, padding and reversal."""

from __future__ import annotations

import math

import numpy as np

from ..call import Call, Value, converter


@converter("Slice", "DynamicSlice")
def slice_(call: Call) -> Value:
    """Bounds are clamped as Python's slices clamp them."""
    starts, ends = call.ints("starts", 1), call.ints("ends", 2)
    if starts is None or ends is None:
        raise call.unsupported("without starts and ends")
    axes = call.ints("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = call.ints("steps", 4) or [1] * len(starts)
    value, sizes = call.inputs[0], call.dims()
    begin, stop, stride, along = [], [], [], []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= len(sizes)
        if not isinstance(sizes[axis], int):
            along.append(axis)
            begin.append(start)
            stop.append(min(end, 2**31 - 1))
            stride.append(step)
            continue
        indices = range(*slice(_within(start), _within(end), step).indices(sizes[axis]))
        if len(indices) == sizes[axis] and step == 1:
            continue
        if not len(indices):
            return call.make("strided_slice", call.x(), [axis], [0], [0], [1])
        along.append(axis)
        begin.append(indices[0])
        # Behind the last element; before the first one that is all of a negative size.
        stop.append(indices[-1] + (1 if step > 0 else -1))
        stride.append(step)
    if not along:
        return value
    if any(step < 0 for step in stride):
        for axis, first, last, step in zip(along, begin, stop, stride, strict=True):
            value = call.do("Gather", value, np.arange(first, last, step), axis=axis)
        return value
    return call.make("strided_slice", call.x(), along, begin, stop, stride)


def _within(bound: int) -> int:
    """Bounds of int64's limits stand for the end."""
    return max(-(2**62), min(2**62, bound))


@converter("Split")
def split(call: Call) -> Value:
    axis, count = call.axis(0), call.outputs
    sizes = call.ints("split", 1)
    if sizes is None:
        size = call.shape()[axis]
        parts = int(call.attrs.get("num_outputs", count))
        each = math.ceil(size / parts)
        sizes = [max(0, min(each, size - i * each)) for i in range(parts)]
    elif sum(sizes) != call.shape()[axis]:
        raise call.contradiction(
            f"in parts of {sizes} along axis {axis}", f"{call.shape()[axis]} in all"
        )
    bounds = np.cumsum(sizes)
    found = [
        call.do("Slice", call.inputs[0], np.array([end - n]), np.array([end]), np.array([axis]))
        for n, end in zip(sizes, bounds, strict=True)
    ]
    return tuple(found) if len(found) > 1 else found[0]


@converter("Pad")
def pad(call: Call) -> Value:
    """Negative widths crop; reflections and repetitions are gathers along each axis."""
    old_name = "paddings" if call.version < 2 else "pads"
    widths, rank = call.ints(old_name, 1) or [], call.rank()
    axes = [a % rank for a in call.ints("axes", 3) or range(rank)]
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = widths[i], widths[len(axes) + i]
    mode = call.attrs.get("mode", "constant")
    sizes = call.shape()
    if mode != "constant":
        return _pad_by_gather(call, mode, before, after)
    fill, computed = call.attrs.get("value", 0.0), None
    if call.has(2):
        filled = call.array(2)
        computed = call.value(2) if filled is None else None
        fill = filled.item() if filled is not None and filled.size else 0.0
    low, high = [max(0, n) for n in before], [max(0, n) for n in after]
    value = call.inputs[0]
    if any(low) or any(high):
        value = _constant(call, value, low, high, fill)
        if computed is not None:
            inside = np.pad(np.ones(sizes, bool), list(zip(low, high, strict=True)))
            value = call.do("Where", inside, value, call.reshape(computed, ()))
    starts = [max(0, -n) for n in before]
    ends = [low[i] + sizes[i] + min(0, after[i]) + high[i] for i in range(rank)]
    return call.do("Slice", value, np.array(starts), np.array(ends))


@converter("Crop")
def crop(call: Call) -> Value:
    """Cut images to a size, or borders (left, top, right, bottom) off them."""
    left, top, right, bottom = call.attrs["border"]
    _, _, height, width = call.shape()
    rows, columns = call.attrs.get("scale", (height - top - bottom, width - left - right))
    ends = np.array([top + rows, left + columns])
    return call.do("Slice", call.value(0), np.array([top, left]), ends, np.array([2, 3]))


def _constant(call: Call, value: Value, low: list[int], high: list[int], fill: float) -> Value:
    widths = [n for pair in zip(low, high, strict=True) for n in pair]
    if not call.dtype().startswith(("float", "bfloat")):  # TVM pads floats alone
        for axis, (first, last) in enumerate(zip(low, high, strict=True)):
            parts = []
            for width in (first, last):
                shape = list(_sizes(call, value))
                shape[axis] = width
                parts.append(np.full(shape, fill, call.const(0).dtype))
            parts.insert(1, value)
            value = call.do("Concat", *parts, axis=axis)
        return value
    return call.make("nn.pad", value, widths, "constant", float(fill))


def _sizes(call: Call, value: Value) -> list[int]:
    return [int(d) for d in call.do("Shape", value)]


def _pad_by_gather(call: Call, mode: str, before: list[int], after: list[int]) -> Value:
    value = call.inputs[0]
    if mode not in ("reflect", "edge", "wrap"):
        raise call.unsupported(f"with mode {mode!r}", "constant, reflect, edge or wrap")
    for axis, size in enumerate(call.shape()):
        low, high = before[axis], after[axis]
        if low or high:
            indices = np.arange(size)[max(0, -low) : size + min(0, high)]
            indices = np.pad(indices, (max(0, low), max(0, high)), mode)  # type: ignore[call-overload]
            value = call.do("Gather", value, indices, axis=axis)
    return value


@converter("ReverseSequence")
def reverse_sequence(call: Call) -> Value:
    """Reverse the first elements of each sequence of a batch."""
    time, batch = int(call.attrs.get("time_axis", 0)), int(call.attrs.get("batch_axis", 1))
    rank, sizes = call.rank(), call.shape()
    lengths = call.do("Cast", call.value(1), to=7)
    if not isinstance(lengths, np.ndarray):
        lengths = call.reshape(lengths, [-1 if i == batch else 1 for i in range(rank)])
    else:
        lengths = lengths.reshape([-1 if i == batch else 1 for i in range(rank)])
    steps = np.arange(sizes[time]).reshape([-1 if i == time else 1 for i in range(rank)])
    turned = call.do("Sub", call.do("Sub", lengths, np.array(1)), steps)
    inside = call.do("Less", steps, lengths)
    indices = call.do("Where", inside, turned, steps)
    indices = call.do("Expand", indices, np.array(sizes))
    return call.do("GatherElements", call.inputs[0], indices, axis=time)

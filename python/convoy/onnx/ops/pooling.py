"""Pooling over windows and over all of the spatial axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call import Call, Value, converter
from .window import Window, window


def kernel_of(call: Call) -> list[int]:
    """The size of the window."""
    return [int(k) for k in call.attrs["kernel_shape"]]


def _padded(call: Call, value: Value, w: Window, fill: float, extra: list[int]) -> Value:
    before, after = list(w.before), [a + e for a, e in zip(w.after, extra, strict=True)]
    if not any(before) and not any(after):
        return value
    widths = np.array([0, 0, *before, 0, 0, *after])
    return call.do("Pad", value, widths, np.array(fill, call.const(0).dtype))


def _extra(call: Call, w: Window, sizes: Any, ceil_mode: bool) -> tuple[list[int], list[int]]:
    """Spatial sizes of the result, and what the last windows reach beyond the padding."""
    out = w.output(sizes, ceil_mode)
    extra = [
        max(0, (o - 1) * w.strides[i] + w.extent(i) - w.before[i] - w.after[i] - sizes[i])
        for i, o in enumerate(out)
    ]
    return out, extra


def _pool(kind: str, call: Call, x: Value, w: Window, padding: list[int]) -> Value:
    rank = len(w.kernel)
    if rank not in (1, 2, 3):
        raise call.unsupported(f"over {rank} axes", "1, 2 or 3 axes")
    spatial = "NC" + "DHW"[3 - rank :]
    return call.make(
        f"nn.{kind}_pool{rank}d", x, w.kernel, w.strides, padding, w.dilations, False,
        count_include_pad=True, layout=spatial,
    )  # fmt: skip


def _crop(call: Call, value: Value, out: list[int]) -> Value:
    axes = np.arange(2, 2 + len(out))
    return call.do("Slice", value, np.zeros(len(out), "int64"), np.array(out), axes)


@converter("MaxPool")
def max_pool(call: Call) -> Value:
    w = window(call, kernel_of(call))
    out, extra = _extra(call, w, call.shape()[2:], bool(call.attrs.get("ceil_mode", 0)))
    dtype = call.dtype()
    if call.outputs > 1:
        return _max_with_indices(call, w, out, extra)
    if dtype.startswith(("float", "bfloat")):
        # A window that lies in the padding alone has no result in ONNX; TVM pads with the least.
        padding = [*w.before, *(a + e for a, e in zip(w.after, extra, strict=True))]
        return _crop(call, _pool("max", call, call.value(0), w, padding), out)
    low = int(np.iinfo(call.const(0).dtype).min)
    padded = _padded(call, call.value(0), w, low, extra)
    return _crop(call, _pool("max", call, padded, w, [0] * 2 * len(out)), out)


def _max_with_indices(call: Call, w: Window, out: list[int], extra: list[int]) -> Value:
    """Maxima and their places in the flattened input: each place of the window by a slice."""
    dtype = call.const(0).dtype
    low = -np.inf if dtype.kind in "fV" else np.iinfo(dtype).min
    sizes, rank = call.shape(), len(out)
    padded = _padded(call, call.value(0), w, low, extra)
    order = range(rank)
    strides = [math.prod(sizes[3 + i :]) for i in order]
    if call.attrs.get("storage_order", 0):
        strides = [math.prod(sizes[2 : 2 + i]) for i in order]
    planes = np.arange(sizes[0] * sizes[1]).reshape(sizes[0], sizes[1], *(1,) * rank)
    best = place = None
    for offset in np.ndindex(*w.kernel):
        first = [o * w.dilations[i] for i, o in enumerate(offset)]
        last = [first[i] + (out[i] - 1) * w.strides[i] + 1 for i in order]
        part = call.do("Slice", padded, np.array(first), np.array(last),
                       np.arange(2, 2 + rank), np.array(w.strides))  # fmt: skip
        index = planes * math.prod(sizes[2:])
        for i in order:
            at = first[i] - w.before[i] + np.arange(out[i]) * w.strides[i]
            index = index + (at * strides[i]).reshape([-1 if k == i else 1 for k in order])
        index = np.broadcast_to(index, (*sizes[:2], *out)).astype("int64")
        if best is None:
            best, place = part, index
        else:
            better = call.do("Greater", part, best)
            best = call.do("Where", better, part, best)
            place = call.do("Where", better, index, place)
    return best, place


@converter("AveragePool")
def average_pool(call: Call) -> Value:
    """Sums by TVM, divided by how many elements each window has."""
    w = window(call, kernel_of(call))
    sizes = call.shape()[2:]
    out, extra = _extra(call, w, sizes, bool(call.attrs.get("ceil_mode", 0)))
    include = bool(call.attrs.get("count_include_pad", 0))
    counts = _counts(w, sizes, out, include)
    area = math.prod(w.kernel)
    rank = len(out)
    if not any(extra) and (include or not any(w.padding)):
        return _pool("avg", call, call.value(0), w, w.padding)
    padded = _padded(call, call.value(0), w, 0.0, extra)
    mean = _crop(call, _pool("avg", call, padded, w, [0] * 2 * rank), out)
    factor = (area / counts).astype(call.const(0).dtype)
    return call.do("Mul", mean, factor.reshape(1, 1, *out))


def _counts(w: Window, sizes: Any, out: list[int], include: bool) -> np.ndarray:
    """Return the number of elements that count in each window."""
    total = np.ones(())
    for i, size in enumerate(sizes):
        starts = np.arange(out[i])[:, None] * w.strides[i] - w.before[i]
        places = starts + np.arange(w.kernel[i]) * w.dilations[i]
        low, high = (-w.before[i], size + w.after[i]) if include else (0, size)
        total = np.multiply.outer(total, ((places >= low) & (places < high)).sum(1))
    return np.maximum(total, 1)


@converter("LpPool")
def lp_pool(call: Call) -> Value:
    p = float(call.attrs.get("p", 2))
    w = window(call, kernel_of(call))
    out, extra = _extra(call, w, call.shape()[2:], bool(call.attrs.get("ceil_mode", 0)))
    raised = _raised(call, call.do("Abs", call.value(0)), p)
    padded = _padded(call, raised, w, 0.0, extra)
    mean = _crop(call, _pool("avg", call, padded, w, [0] * 2 * len(out)), out)
    return _root(call, call.do("Mul", mean, call.const(math.prod(w.kernel))), p)


def _raised(call: Call, value: Value, p: float) -> Value:
    return value if p == 1 else call.do("Pow", value, call.const(p))


def _root(call: Call, value: Value, p: float) -> Value:
    if p == 1:
        return value
    return call.do("Sqrt", value) if p == 2 else call.do("Pow", value, call.const(1 / p))


@converter("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call) -> Value:
    axes = np.arange(2, call.rank())
    if call.op == "GlobalAveragePool":
        return call.do("ReduceMean", call.value(0), axes)
    if call.op == "GlobalMaxPool":
        return call.do("ReduceMax", call.value(0), axes)
    p = float(call.attrs.get("p", 2))
    raised = _raised(call, call.do("Abs", call.value(0)), p)
    return _root(call, call.do("ReduceSum", raised, axes), p)


@converter("MaxUnpool")
def max_unpool(call: Call) -> Value:
    """Scatter maxima to where they came from: indices count in a result of the given shape."""
    rank, sizes = call.rank() - 2, call.shape()
    kernel = kernel_of(call)
    strides = tuple(call.attrs.get("strides", (1,) * rank))
    pads = tuple(call.attrs.get("pads", (0,) * (2 * rank)))
    if call.has(2):
        shape = [int(d) for d in call.constant(2, "output shape")]
    else:
        shape = [*sizes[:2]] + [
            (sizes[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i]
            for i in range(rank)
        ]
    zeros = np.zeros(math.prod(shape), call.const(0).dtype)
    places = call.reshape(call.value(1), (-1,))
    flat = call.reshape(call.value(0), (-1,))
    return call.reshape(call.do("ScatterElements", zeros, places, flat, axis=0), shape)

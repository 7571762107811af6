"""Sums, means and extremes of what a computed mask selects, as those of all elements of which the
others change nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call import Call, Value
from ..selected import Selected


def reduced(call: Call, first: Selected) -> Value:
    """A reduction over the rows and any further axes."""
    data = call.inputs[0]
    if not isinstance(data, Selected) or data.axis or call.attrs.get("noop_with_empty_axes", 0):
        return None
    is_mean, narrow = call.op == "ReduceMean", call.do_dtype(data.value)
    wide = "float32" if is_mean and narrow.itemsize == 2 else str(narrow)  # counts may be large
    rows = call.expr(call.cast(data.value, wide))
    shape, dtype = call.builder.dims(rows), call.do_dtype(rows)
    axes = [axis % len(shape) for axis in call.ints("axes", 1) or range(len(shape))]
    if 0 not in axes:
        return None
    flags = call.reshape(data.mask, (-1, *(1,) * (len(shape) - 1)))
    chosen = call.do("Where", flags, rows, np.array(_neutral(call.op, dtype), dtype))
    keep = int(call.attrs.get("keepdims", 1))
    found = call.do("ReduceSum" if is_mean else call.op, chosen, np.array(axes), keepdims=keep)
    if not is_mean:
        return found
    of_each = math.prod(shape[axis] for axis in axes if axis)
    counts = call.do("ReduceSum", call.cast(data.mask, str(dtype)), keepdims=0)
    mean = call.do("Div", found, call.do("Mul", counts, np.array(of_each, dtype)))
    return call.cast(mean, str(narrow))


def _neutral(op: str, dtype: np.dtype[Any]) -> float:
    """What changes no result."""
    if op in ("ReduceSum", "ReduceMean"):
        return 0
    sign = -1 if op == "ReduceMax" else 1
    if dtype.kind not in "iu":
        return sign * math.inf
    return int(np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max)

"""Reductions and running sums."""

from __future__ import annotations

import math

import numpy as np

from ..call import Call, Value, converter

#: Values of reductions of nothing.
_NEUTRAL = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf}


def _axes(call: Call) -> list[int] | None:
    """The axes that are reduced; None for nothing at all."""
    axes = call.ints("axes", 1)
    if not axes:
        return None if call.attrs.get("noop_with_empty_axes", 0) else list(range(call.rank()))
    return sorted(axis % call.rank() for axis in axes)


@converter("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd")
def reduce(call: Call) -> Value:
    axes, keep = _axes(call), bool(call.attrs.get("keepdims", 1))
    if axes is None or not call.rank():
        return call.inputs[0]
    sizes = call.dims()
    if any(sizes[a] == 0 for a in axes) and not any(
        size == 0 for a, size in enumerate(sizes) if a not in axes
    ):
        return _of_nothing(call, axes, keep)
    value, dtype, op = call.value(0), call.dtype(), call.op.removeprefix("Reduce").lower()
    if dtype == "bool":
        value = call.cast(value, "uint8")
    elif op == "mean" and not dtype.startswith(("float", "bfloat")):
        total = call.do("ReduceSum", value, np.array(axes), keepdims=int(keep))
        return call.do("Div", total, call.const(math.prod(call.shape()[a] for a in axes)))
    if op in ("max", "min") and dtype == "bfloat16":
        wide = call.do(call.op, call.cast(value, "float32"), np.array(axes), keepdims=int(keep))
        return call.cast(wide, dtype)
    if op in ("max", "min") and dtype.startswith("float"):
        return _extreme(call, op, axes, keep)
    result = call.make(op, call.expr(value), axes, keep)
    return call.do("Cast", result, to=9) if dtype == "bool" else result


def _extreme(call: Call, op: str, axes: list[int], keep: bool) -> Value:
    """TVM starts a maximum at the least finite number, which it is then of infinities alone: the
    halves of numbers never are that number."""
    start = np.finfo(call.const(0).dtype)
    bound, infinity = (start.min, -np.inf) if op == "max" else (start.max, np.inf)
    found = call.make(op, call.do("Mul", call.value(0), call.const(0.5)), axes, keep)
    none = call.do("Equal", found, call.const(bound))
    return call.do("Where", none, call.const(infinity), call.do("Mul", found, call.const(2)))


def _of_nothing(call: Call, axes: list[int], keep: bool) -> Value:
    shape = [1 if i in axes else d for i, d in enumerate(call.shape()) if keep or i not in axes]
    dtype = call.const(0).dtype
    neutral = _NEUTRAL.get(call.op, np.nan)
    if not np.isfinite(neutral) and dtype.kind not in "fV":
        if dtype.kind == "b":
            neutral = neutral > 0
        else:
            limits = np.iinfo(dtype)
            neutral = limits.min if neutral < 0 else limits.max
    return np.full(shape, neutral, dtype)


@converter("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")
def reduce_composed(call: Call) -> Value:
    axes, x = _axes(call), call.value(0)
    if call.op == "ReduceL1":
        x = call.do("Abs", x)
    elif call.op in ("ReduceL2", "ReduceSumSquare"):
        x = call.do("Mul", x, x)
    if axes is not None and call.rank():
        keep = int(call.attrs.get("keepdims", 1))
        x = call.do("ReduceSum", x, np.array(axes), keepdims=keep)
    if call.op == "ReduceL2":
        return _in_float(call, "Sqrt", x)
    return _in_float(call, "Log", x) if call.op == "ReduceLogSum" else x


def _in_float(call: Call, op: str, value: Value) -> Value:
    """A function of floats; of integers by way of float64."""
    dtype = call.dtype()
    if dtype.startswith(("float", "bfloat")):
        return call.do(op, value)
    return call.cast(call.do(op, call.cast(value, "float64")), dtype)


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(call: Call) -> Value:
    """The maximum is taken out, so that exp does not overflow; of single elements nothing else is
    left."""
    axes, x = _axes(call), call.value(0)
    if axes is None or not call.rank():
        return x
    dtype = call.dtype()
    if not dtype.startswith(("float", "bfloat")):
        x = call.cast(x, "float64")
    along = np.array(axes)
    if 0 in call.dims():
        return _of_nothing_log(call, axes)
    top = call.do("ReduceMax", x, along)
    numpy = call.do_dtype(top)
    finite = call.do("Less", call.do("Abs", top), np.array(np.inf, numpy))
    top = call.do("Where", finite, top, np.array(0, numpy))
    total = call.do("ReduceSum", call.do("Exp", call.do("Sub", x, top)), along)
    result = call.do("Add", call.do("Log", total), top)
    if not call.attrs.get("keepdims", 1):
        result = call.do("Squeeze", result, along)
    return call.cast(result, dtype)


def _of_nothing_log(call: Call, axes: list[int]) -> Value:
    keep = bool(call.attrs.get("keepdims", 1))
    shape = [1 if i in axes else d for i, d in enumerate(call.shape()) if keep or i not in axes]
    return np.full(shape, -np.inf, call.const(0).dtype)


@converter("CumSum", "CumProd")
def cumulative(call: Call) -> Value:
    axis = int(call.constant(1, "axis").reshape(-1)[0]) % call.rank()
    exclusive, reverse = (bool(call.attrs.get(n, 0)) for n in ("exclusive", "reverse"))
    size = call.shape()[axis]
    back = np.arange(size)[::-1].copy()
    x = call.do("Gather", call.value(0), back, axis=axis) if reverse else call.value(0)
    # The dtype is given because TVM widens small integers.
    x = call.make(call.op.lower(), call.expr(x), axis, call.dtype(), exclusive)
    return call.do("Gather", x, back, axis=axis) if reverse else x

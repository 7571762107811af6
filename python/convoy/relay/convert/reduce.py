"""Reductions, sorting and cumulative sums."""

from __future__ import annotations

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter
from convoy.relay.infer.reduce import reduced_axes

_REDUCE = {
    "sum": relax.op.sum,
    "mean": relax.op.mean,
    "max": relax.op.max,
    "min": relax.op.min,
    "prod": relax.op.prod,
}


@converter(*_REDUCE)
def reduce(op: OpCall) -> RelaxExpr:
    axes = reduced_axes(op.attrs, len(op.type(0).shape))
    if not axes:
        return op.args[0]
    return _REDUCE[op.name](op.args[0], axes, keepdims=op.attrs["keepdims"])


@converter("all", "any")
def reduce_bool(op: OpCall) -> RelaxExpr:
    axes = reduced_axes(op.attrs, len(op.type(0).shape))
    if not axes:
        return op.args[0]
    numbers = op.cast(op.args[0], "int8")
    choose = relax.op.min if op.name == "all" else relax.op.max
    return op.cast(op.emit(choose(numbers, axes, keepdims=op.attrs["keepdims"])), "bool")


@converter("argmax", "argmin")
def arg_reduce(op: OpCall) -> RelaxExpr:
    axes = reduced_axes(op.attrs, len(op.type(0).shape))
    compute = topi.argmax if op.name == "argmax" else topi.argmin
    return op.te(
        compute,
        op.args[0],
        axis=axes,
        keepdims=op.attrs["keepdims"],
        select_last_index=op.attrs["select_last_index"],
    )


@converter("variance")
def variance(op: OpCall) -> RelaxExpr:
    """The mean of the squared distances from the mean that is given."""
    axes = reduced_axes(op.attrs, len(op.type(0).shape))
    distance = op.emit(relax.op.subtract(op.args[0], op.args[1]))
    squares = op.emit(relax.op.multiply(distance, distance))
    keepdims = op.attrs["keepdims"]
    if not op.attrs["unbiased"]:
        return relax.op.mean(squares, axes, keepdims=keepdims)
    count = 1
    for axis in axes:
        count *= op.shape(0)[axis]
    total = op.emit(relax.op.sum(squares, axes, keepdims=keepdims))
    return relax.op.divide(total, op.const(count - 1, op.type(0).dtype))


@converter("cumsum", "cumprod")
def cumulative(op: OpCall) -> RelaxExpr:
    axis, dtype = op.attrs["axis"], op.attrs["dtype"]
    compute = relax.op.cumsum if op.name == "cumsum" else relax.op.cumprod
    return compute(
        op.args[0],
        None if axis is None else int(axis),
        dtype or op.type(0).dtype,
        bool(op.attrs["exclusive"]),
    )


@converter("sort")
def sort(op: OpCall) -> RelaxExpr:
    descending = not op.attrs["is_ascend"]
    return relax.op.sort(op.args[0], axis=op.attrs.get_int("axis"), descending=descending)


@converter("argsort")
def argsort(op: OpCall) -> RelaxExpr:
    descending = not op.attrs["is_ascend"]
    return relax.op.argsort(op.args[0], op.attrs.get_int("axis"), descending, op.attrs["dtype"])


@converter("topk")
def topk(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return relax.op.topk(
        op.args[0],
        int(attrs["k"]),
        attrs.get_int("axis"),
        attrs["ret_type"],
        largest=not attrs["is_ascend"],
        dtype=attrs["dtype"],
    )

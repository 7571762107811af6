"""Reductions, sorting, sums along an axis."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dtype_of, infer_shape, is_float, rank, scalar_like
from convoy.relay.frontend.pytorch.arithmetic import as_bool
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import tensor as R


def _axes(call: Call) -> dict[str, Any]:
    return {"axis": call.axes(), "keepdims": bool(call.get("keepdim"))}


def _wide(data: Expr, dtype: str | None) -> Expr:
    """Return data in the dtype to sum in: that given, int64 for whole numbers."""
    if dtype is None and not is_float(data):
        dtype = "int64"
    return data if dtype is None else cast(data, dtype)


@convert("sum", "nansum", "prod")
def convert_sum(call: Call) -> Expr:
    data = _wide(call["self"], call.dtype())
    if not rank(data):
        return data
    function = R.prod if call.short == "prod" else R.sum
    return function(data, **_axes(call))


@convert("mean")
def mean(call: Call) -> Expr:
    dtype = call.dtype()
    data = call.floating() if dtype is None else cast(call["self"], dtype)
    return R.mean(data, **_axes(call)) if rank(data) else data


@convert("amax", "amin")
def amax(call: Call) -> Expr:
    return (R.max if call.short == "amax" else R.min)(call["self"], **_axes(call))


@convert("max", "min")
def extreme(call: Call) -> Any:
    """Take the extreme of all elements, or along an axis with its index, or of two tensors."""
    largest = call.short == "max"
    if call.get("other") is not None:
        return (R.maximum if largest else R.minimum)(*call.promoted("self", "other"))
    reduce = R.max if largest else R.min
    data = call["self"]
    if call.get("dim") is None:
        return reduce(data, axis=tuple(range(rank(data)))) if rank(data) else data
    axis, keep = call.axis(), bool(call.get("keepdim"))
    index = (R.argmax if largest else R.argmin)(data, axis=axis, keepdims=keep)
    return [reduce(data, axis=axis, keepdims=keep), cast(index, "int64")]


@convert("argmax", "argmin")
def arg_extreme(call: Call) -> Expr:
    function = R.argmax if call.short == "argmax" else R.argmin
    data = call["self"]
    if call.get("dim") is None:
        return cast(function(R.reshape(data, (-1,)), axis=0), "int64")
    keep = bool(call.get("keepdim"))
    return cast(function(data, axis=call.axis(), keepdims=keep), "int64")


@convert("all", "any")
def logical(call: Call) -> Expr:
    data = as_bool(call["self"])
    if not rank(data):
        return data
    return (R.all if call.short == "all" else R.any)(data, **_axes(call))


@convert("logsumexp")
def logsumexp(call: Call) -> Expr:
    return R.logsumexp(call.floating(), **_axes(call))


@convert("var", "std", "var_mean", "std_mean")
def variance(call: Call) -> Any:
    """Compute variance or deviation, with Bessel's correction unless it is turned off."""
    data = call["self"]
    correction = call.get("correction", 1)
    if call.get("unbiased") is not None:
        correction = int(call.get("unbiased"))
    axes = _axes(call)
    average = R.mean(data, axis=axes["axis"], keepdims=True)
    centred = R.subtract(data, average)
    total = R.sum(R.multiply(centred, centred), **axes)
    count = 1
    for axis in axes["axis"]:
        count *= infer_shape(data)[axis]
    result = R.divide(total, scalar_like(max(0, count - correction), data))
    if call.short.startswith("std"):
        result = R.sqrt(result)
    return [result, R.mean(data, **axes)] if call.short.endswith("mean") else result


@convert("norm", "linalg_vector_norm", "frobenius_norm", "linalg_norm")
def norm(call: Call) -> Expr:
    """Compute a p-norm of vectors.

    Raises:
        UnsupportedOp: A norm of matrices other than Frobenius'.
    """
    order = call.get("p", call.get("ord", 2))
    if isinstance(order, str):
        if order != "fro":
            raise call.error(f"the norm '{order}'", "a p-norm")
        order = 2
    data, axes = R.abs(call.floating()), _axes(call)
    if order == float("inf"):
        return R.max(data, **axes)
    if order == float("-inf"):
        return R.min(data, **axes)
    if order == 0:
        return R.sum(cast(as_bool(data), dtype_of(data)), **axes)
    if order == 1:
        return R.sum(data, **axes)
    if order == 2:
        return R.sqrt(R.sum(R.multiply(data, data), **axes))
    total = R.sum(R.power(data, scalar_like(order, data)), **axes)
    return R.power(total, scalar_like(1 / order, data))


@convert("cumsum", "cumprod")
def cumulative(call: Call) -> Expr:
    data = _wide(call["self"], call.dtype())
    return (R.cumsum if call.short == "cumsum" else R.cumprod)(data, axis=call.axis())


@convert("topk")
def topk(call: Call) -> Any:
    """Take the largest or least k elements of an axis, with their indices."""
    data, axis = call["self"], call.axis() if call.get("dim") is not None else -1
    k, least = call.whole(call.get("k")), not call.get("largest", True)
    last = rank(data) - 1
    if axis in (-1, last):
        return list(R.topk(data, k=k, axis=-1, is_ascend=least, dtype="int64"))
    order = list(range(rank(data)))
    order[axis], order[last] = order[last], order[axis]
    found = R.topk(R.transpose(data, order), k=k, axis=-1, is_ascend=least, dtype="int64")
    return [R.transpose(f, order) for f in found]


@convert("sort")
def sort(call: Call) -> Any:
    data, axis = (
        call["self"],
        call.axis() if call.get("dim") is not None else rank(call["self"]) - 1,
    )
    ascending = not call.get("descending", False)
    index = R.argsort(data, axis=axis, is_ascend=ascending, dtype="int64")
    return [R.gather(data, axis, index), index]


@convert("searchsorted", "bucketize")
def searchsorted(call: Call) -> Expr:
    """Find the places of values in sorted sequences.

    Raises:
        UnsupportedOp: Sequences whose order a sorter gives.
    """
    if call.get("sorter") is not None:
        raise call.error("a sorter", "sorted sequences")
    bounds = call["boundaries" if call.short == "bucketize" else "sorted_sequence"]
    dtype = "int32" if call.get("out_int32") else "int64"
    right = bool(call.get("right")) or call.get("side") == "right"
    return R.searchsorted(bounds, call["self"], right, dtype)


@convert("argsort")
def argsort(call: Call) -> Expr:
    axis = call.axis() if call.get("dim") is not None else rank(call["self"]) - 1
    ascending = not call.get("descending", False)
    return R.argsort(call["self"], axis=axis, is_ascend=ascending, dtype="int64")

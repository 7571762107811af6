"""Operators on tensors with attributes: shapes, slices, new tensors, reductions, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr, TupleWrapper
from convoy.relay.builder import const
from convoy.relay.op.call import as_tuple, call, expr

Axes = Any  # None, an int or a sequence of int


def _axes(axis: Axes) -> tuple[int, ...] | None:
    return (axis,) if isinstance(axis, int) else None if axis is None else tuple(axis)


# ---- element types and values


def cast(data: Expr, dtype: str) -> Call:
    return call("cast", data, dtype=dtype)


def cast_like(data: Expr, dtype_like: Expr) -> Call:
    return call("cast_like", data, dtype_like)


def clip(a: Expr, a_min: float, a_max: float) -> Call:
    return call("clip", a, a_min=a_min, a_max=a_max)


def where(condition: Expr, x: Expr, y: Expr) -> Call:
    return call("where", condition, x, y)


# ---- shapes


def reshape(data: Expr, newshape: int | Sequence[int], allowzero: bool = False) -> Call:
    """Another shape; 0 copies a dimension, -1 is inferred, -2, -3 and -4 copy, merge and split."""
    shape = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    return call("reshape", data, newshape=shape, allowzero=allowzero)


def reverse_reshape(data: Expr, newshape: int | Sequence[int]) -> Call:
    shape = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    return call("contrib_reverse_reshape", data, newshape=shape)


def reshape_like(
    data: Expr,
    shape_like: Expr,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> Call:
    attrs = {"lhs_begin": lhs_begin, "lhs_end": lhs_end}
    return call("reshape_like", data, shape_like, rhs_begin=rhs_begin, rhs_end=rhs_end, **attrs)


def squeeze(data: Expr, axis: Axes = None) -> Call:
    return call("squeeze", data, axis=_axes(axis))


def expand_dims(data: Expr, axis: int, num_newaxis: int = 1) -> Call:
    return call("expand_dims", data, axis=axis, num_newaxis=num_newaxis)


def transpose(data: Expr, axes: Sequence[int] | None = None) -> Call:
    return call("transpose", data, axes=axes)


def layout_transform(data: Expr, src_layout: str, dst_layout: str) -> Call:
    return call("layout_transform", data, src_layout=src_layout, dst_layout=dst_layout)


def reverse(data: Expr, axis: int) -> Call:
    return call("reverse", data, axis=axis)


def concatenate(data: Any, axis: int) -> Call:
    return call("concatenate", as_tuple(data), axis=axis)


def stack(data: Any, axis: int) -> Call:
    return call("stack", as_tuple(data), axis=axis)


def split(data: Expr, indices_or_sections: int | Sequence[int], axis: int = 0) -> TupleWrapper:
    """Equal parts (an int), or parts that end at indices (a sequence)."""
    parts = indices_or_sections
    parts = parts if isinstance(parts, int) else tuple(parts)
    count = parts if isinstance(parts, int) else len(parts) + 1
    return TupleWrapper(call("split", data, indices_or_sections=parts, axis=axis), count)


def broadcast_to(data: Expr, shape: Sequence[int]) -> Call:
    return call("broadcast_to", data, shape=tuple(shape))


def broadcast_to_like(data: Expr, broadcast_type: Expr) -> Call:
    return call("broadcast_to_like", data, broadcast_type)


def collapse_sum_like(data: Expr, collapse_type: Expr) -> Call:
    return call("collapse_sum_like", data, collapse_type)


def collapse_sum_to(data: Expr, shape: Any) -> Call:
    if isinstance(shape, (list, tuple)):
        shape = const(list(shape), "int32")
    return call("collapse_sum_to", data, shape)


def repeat(data: Expr, repeats: int, axis: int | None = None) -> Call:
    return call("repeat", data, repeats=repeats, axis=axis)


def tile(data: Expr, reps: int | Sequence[int]) -> Call:
    return call("tile", data, reps=(reps,) if isinstance(reps, int) else tuple(reps))


def meshgrid(data: Any, indexing: str = "ij") -> TupleWrapper:
    fields = as_tuple(data)
    count = len(fields.fields)  # type: ignore[attr-defined]
    return TupleWrapper(call("meshgrid", fields, indexing=indexing), count)


# ---- new tensors


def full(fill_value: Expr, shape: Sequence[int] = (), dtype: str = "") -> Call:
    return call("full", fill_value, shape=tuple(shape), dtype=dtype)


def full_like(data: Expr, fill_value: Expr) -> Call:
    return call("full_like", data, fill_value)


def zeros(shape: Sequence[int], dtype: str) -> Call:
    return call("zeros", shape=tuple(shape), dtype=dtype)


def ones(shape: Sequence[int], dtype: str) -> Call:
    return call("ones", shape=tuple(shape), dtype=dtype)


def arange(
    start: Expr, stop: Expr | None = None, step: Expr | None = None, dtype: str = "float32"
) -> Call:
    """Numbers from `start` up to `stop`, of constants."""
    if stop is None:
        start, stop = const(0, dtype), start
    step = const(1, dtype) if step is None else step
    bounds = {"start": start, "stop": stop, "step": step}
    return call("arange", start, stop, step, dtype=dtype, **bounds)


def one_hot(
    indices: Expr, on_value: Expr, off_value: Expr, depth: int, axis: int, dtype: str
) -> Call:
    return call("one_hot", indices, on_value, off_value, depth=depth, axis=axis, dtype=dtype)


def shape_of(data: Expr, dtype: str = "int32") -> Call:
    return call("shape_of", data, dtype=dtype)


def ndarray_size(data: Expr, dtype: str = "int32") -> Call:
    return call("ndarray_size", data, dtype=dtype)


# ---- slices and indices


def strided_slice(
    data: Expr,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Call:
    """From `begin` to `end`; with slice_mode "size" `end` has numbers of elements."""
    strides = (1,) if strides is None else tuple(strides)
    return call(
        "strided_slice",
        data,
        begin=tuple(begin),
        end=tuple(end),
        strides=strides,
        slice_mode=slice_mode,
        axes=axes,
    )


def slice_like(data: Expr, shape_like: Expr, axes: Sequence[int] | None = None) -> Call:
    return call("slice_like", data, shape_like, axes=axes)


def take(
    data: Expr, indices: Expr, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> Call:
    return call("take", data, indices, batch_dims=batch_dims, axis=axis, mode=mode)


def gather(data: Expr, axis: int, indices: Expr) -> Call:
    return call("gather", data, indices, axis=axis)


def gather_nd(
    data: Expr, indices: Expr, batch_dims: int = 0, index_rank: int | None = None
) -> Call:
    return call("gather_nd", data, indices, batch_dims=batch_dims, index_rank=index_rank)


def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> Call:
    return call("scatter_elements", data, indices, updates, axis=axis, reduction=reduction)


def scatter_nd(data: Expr, indices: Expr, updates: Expr, mode: str = "update") -> Call:
    return call("scatter_nd", data, indices, updates, mode=mode)


def sequence_mask(data: Expr, valid_length: Expr, mask_value: float = 0, axis: int = 0) -> Call:
    return call("sequence_mask", data, valid_length, mask_value=mask_value, axis=axis)


def reverse_sequence(data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    return call("reverse_sequence", data, seq_lengths, seq_axis=seq_axis, batch_axis=batch_axis)


def trilu(data: Expr, k: Any, upper: bool = True) -> Call:
    return call("trilu", data, k if isinstance(k, Expr) else const(k, "int32"), upper=upper)


def einsum(data: Any, equation: str) -> Call:
    return call("einsum", as_tuple(data), equation=equation)


# ---- reductions


def _reduce(name: str, data: Expr, axis: Axes, keepdims: bool, exclude: bool, **more: Any) -> Call:
    return call(name, data, axis=_axes(axis), keepdims=keepdims, exclude=exclude, **more)


def sum(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("sum", data, axis, keepdims, exclude)


def mean(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("mean", data, axis, keepdims, exclude)


def max(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("max", data, axis, keepdims, exclude)


def min(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("min", data, axis, keepdims, exclude)


def prod(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("prod", data, axis, keepdims, exclude)


def all(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("all", data, axis, keepdims, exclude)


def any(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
    return _reduce("any", data, axis, keepdims, exclude)


def argmax(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> Call:
    return _reduce("argmax", data, axis, keepdims, exclude, select_last_index=select_last_index)


def argmin(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> Call:
    return _reduce("argmin", data, axis, keepdims, exclude, select_last_index=select_last_index)


def variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Call:
    """The variance, around `with_mean` where it is given."""
    center = mean(data, axis, True, exclude) if with_mean is None else expr(with_mean, "variance")
    attrs = {"axis": _axes(axis), "keepdims": keepdims, "exclude": exclude}
    return call("variance", data, center, unbiased=unbiased, **attrs)


def std(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Call:
    return call("sqrt", variance(data, axis, keepdims, exclude, unbiased))


def mean_variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> tuple[Call, Call]:
    center = mean(data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, center)
    return (center if keepdims else mean(data, axis, keepdims, exclude)), spread


def mean_std(
    data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> tuple[Call, Call]:
    center, spread = mean_variance(data, axis, keepdims, exclude)
    return center, call("sqrt", spread)


def logsumexp(data: Expr, axis: Axes = None, keepdims: bool = False) -> Call:
    """log(sum(exp(data))), with the largest element taken out."""
    largest = max(data, axis, True)
    total = sum(call("exp", call("subtract", data, largest)), axis, keepdims)
    return call("add", call("log", total), largest if keepdims else max(data, axis, False))


def cumsum(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Call:
    return call("cumsum", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


def cumprod(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Call:
    return call("cumprod", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


# ---- sorting


def sort(data: Expr, axis: int = -1, is_ascend: bool = True) -> Call:
    return call("sort", data, axis=axis, is_ascend=bool(is_ascend), dtype="int32")


def argsort(data: Expr, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Call:
    return call("argsort", data, axis=axis, is_ascend=bool(is_ascend), dtype=dtype)


def topk(
    data: Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> Any:
    """The k largest (or smallest) values, their indices, or both."""
    attrs = {"k": k, "axis": axis, "ret_type": ret_type, "is_ascend": is_ascend, "dtype": dtype}
    result = call("topk", data, **attrs)
    return TupleWrapper(result, 2) if ret_type == "both" else result

"""Reductions."""

from __future__ import annotations

from convoy.relay.attrs import Attrs
from convoy.relay.infer.rules import Inputs, rule
from convoy.relay.types import Dim, TensorType, TupleType, Type


def reduced_axes(attrs: Attrs, ndim: int) -> list[int]:
    """The axes that a reduction removes: none given means all; `exclude` means the others.

    Raises:
        ValueError: an axis that the tensor does not have.
    """
    given = attrs["axis"]
    if given is None or (not given and not attrs["exclude"]):
        return [] if given is None and attrs["exclude"] else list(range(ndim))
    axes = []
    for axis in given:
        if not isinstance(axis, int) or not -ndim <= axis < ndim:
            raise ValueError(axis)
        axes.append(axis % ndim)
    if attrs["exclude"]:
        return [i for i in range(ndim) if i not in axes]
    return sorted(set(axes))


def _shape(call: Inputs, data: TensorType) -> list[Dim]:
    try:
        axes = reduced_axes(call.attrs, len(data.shape))
    except ValueError as bad:
        raise call.error(f"axis {bad} of {data}", "an axis that it has") from None
    keep = call.attrs["keepdims"]
    return [1 if i in axes else d for i, d in enumerate(data.shape) if keep or i not in axes]


@rule("sum", "mean", "max", "min", "prod")
def reduce(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    return TensorType(_shape(call, data), data.dtype)


@rule("all", "any")
def reduce_bool(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    if data.dtype != "bool":
        raise call.error(f"a {data}", "a bool tensor")
    return TensorType(_shape(call, data), data.dtype)


@rule("argmax", "argmin")
def arg_reduce(call: Inputs) -> Type:
    call.count(1)
    return TensorType(_shape(call, call.tensor(0)), "int32")


@rule("variance")
def variance(call: Inputs) -> Type:
    """Arguments: the data, and its mean with the reduced axes kept."""
    call.count(2)
    data = call.tensor(0)
    call.tensor(1)
    return TensorType(_shape(call, data), data.dtype)


@rule("cumsum", "cumprod")
def cumulative(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis, dtype = call.attrs["axis"], call.attrs["dtype"] or data.dtype
    if axis is None:
        from convoy.relay.infer.shape import total_size

        return TensorType((total_size(data.shape),), dtype)
    call.axis(axis, len(data.shape))
    return TensorType(data.shape, dtype)


@rule("sort", "argsort")
def sort(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return TensorType(data.shape, call.attrs["dtype"] if call.name == "argsort" else data.dtype)


@rule("topk")
def topk(call: Inputs) -> Type:
    call.count(1)
    data, attrs = call.tensor(0), call.attrs
    axis = call.axis(attrs.get_int("axis"), len(data.shape))
    shape = list(data.shape)
    if attrs["k"] is None:
        raise call.error("topk with k=None", "a number")
    if attrs["k"] >= 1:
        shape[axis] = attrs["k"]
    values, indices = TensorType(shape, data.dtype), TensorType(shape, attrs["dtype"])
    if attrs["ret_type"] == "both":
        return TupleType([values, indices])
    if attrs["ret_type"] not in ("values", "indices"):
        raise call.error(f"ret_type='{attrs['ret_type']}'", "'both', 'values' or 'indices'")
    return values if attrs["ret_type"] == "values" else indices

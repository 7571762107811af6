"""Reductions over axes, statistics, and cumulative sums and products.

A reduction removes the axes in `axis`; None means all. `exclude=True` removes the other axes;
`keepdims=True` keeps removed ones with size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy.relay.ast import Call, Expr, Tuple, TupleWrapper
from convoy.relay.attrs import Attrs
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import Axes, axes_of, expr, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import total_size
from convoy.relay.types import Dim, TensorType, Type

_NUMERIC = ["sum", "mean", "max", "min", "prod"]
_BOOLEAN = ["all", "any"]


# ---- reductions


def _reduction(name: str) -> Callable[..., Call]:
    def build(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call:
        return make_call(name, data, axis=axes_of(axis), keepdims=keepdims, exclude=exclude)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Reduce axes by `{name}`."
    return builder(name)(build)


_sum, _mean, _max, *_ = (_reduction(name) for name in (*_NUMERIC, *_BOOLEAN))


def reduced_axes(attrs: Attrs, ndim: int) -> list[int]:
    """Return the axes that a reduction removes, in ascending order.

    Args:
        attrs: Attributes with `axis` and `exclude`.
        ndim: The number of dimensions of the data.

    Raises:
        ValueError: An axis that the data does not have.
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


def _reduced_shape(call: Inputs, data: TensorType) -> list[Dim]:
    try:
        axes = reduced_axes(call.attrs, len(data.shape))
    except ValueError as bad:
        raise call.error(f"axis {bad} of {data}", "an axis that it has") from None
    keep = call.attrs["keepdims"]
    return [1 if i in axes else d for i, d in enumerate(data.shape) if keep or i not in axes]


@type_rule(*_NUMERIC)
def infer_numeric(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    return TensorType(_reduced_shape(call, data), data.dtype)


@type_rule(*_BOOLEAN)
def infer_boolean(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    if data.dtype != "bool":
        raise call.error(f"a {data}", "a bool tensor")
    return TensorType(_reduced_shape(call, data), data.dtype)


def _axes(op: OpCall) -> list[int]:
    return reduced_axes(op.attrs, len(op.type(0).shape))


@converter(*_NUMERIC)
def convert_numeric(op: OpCall) -> RelaxExpr:
    axes = _axes(op)
    if not axes:
        return op.args[0]
    if op.type(0).dtype == "bool" and op.name in ("min", "max"):
        return _of_bools(op, op.name, axes)
    keepdims = op.attrs["keepdims"]
    if op.name == "mean":
        return op.averaged(lambda data: relax.op.mean(data, axes, keepdims=keepdims))
    return getattr(relax.op, op.name)(op.args[0], axes, keepdims=keepdims)


@converter(*_BOOLEAN)
def convert_boolean(op: OpCall) -> RelaxExpr:
    axes = _axes(op)
    return _of_bools(op, "min" if op.name == "all" else "max", axes) if axes else op.args[0]


def _of_bools(op: OpCall, name: str, axes: Sequence[int]) -> RelaxExpr:
    """Emit a minimum or maximum of bools as one of int8."""
    numbers = op.cast(op.args[0], "int8")
    found = getattr(relax.op, name)(numbers, axes, keepdims=op.attrs["keepdims"])
    return op.cast(op.emit(found), "bool")


# ---- indices of extrema


def _arg_reduction(name: str) -> None:
    def build(
        data: Expr,
        axis: Axes = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Call:
        attrs = {"keepdims": keepdims, "exclude": exclude, "select_last_index": select_last_index}
        return make_call(name, data, axis=axes_of(axis), **attrs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Find the int32 index of the {name.removeprefix('arg')}imum over axes."
    builder(name)(build)


_arg_reduction("argmax")
_arg_reduction("argmin")


@type_rule("argmax", "argmin")
def infer_arg_reduction(call: Inputs) -> Type:
    call.count(1)
    return TensorType(_reduced_shape(call, call.tensor(0)), "int32")


@converter("argmax", "argmin")
def convert_arg_reduction(op: OpCall) -> RelaxExpr:
    found = op.te(
        topi.argmax if op.name == "argmax" else topi.argmin,
        op.args[0],
        axis=_axes(op),
        keepdims=op.attrs["keepdims"],
        select_last_index=op.attrs["select_last_index"],
    )
    return op.cast(found, op.result.dtype)  # topi's indices have the dtype of the sizes


# ---- statistics


@builder("variance")
def variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Call:
    """Compute the variance.

    Args:
        unbiased: Divide by the number of elements less one.
        with_mean: The mean, with reduced axes kept; None computes it.
    """
    center = _mean(data, axis, True, exclude) if with_mean is None else expr(with_mean, "variance")
    attrs = {"axis": axes_of(axis), "keepdims": keepdims, "exclude": exclude}
    return make_call("variance", data, center, unbiased=unbiased, **attrs)


@builder("std")
def std(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Call:
    """Compute the standard deviation."""
    return make_call("sqrt", variance(data, axis, keepdims, exclude, unbiased))


@builder("mean_variance")
def mean_variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """Compute the mean and the variance."""
    center = _mean(data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, center)
    return _pair(center if keepdims else _mean(data, axis, keepdims, exclude), spread)


@builder("mean_std")
def mean_std(
    data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> TupleWrapper:
    """Compute the mean and the standard deviation."""
    center = _mean(data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, with_mean=center)
    first = center if keepdims else _mean(data, axis, keepdims, exclude)
    return _pair(first, make_call("sqrt", spread))


def _pair(first: Expr, second: Expr) -> TupleWrapper:
    return TupleWrapper(Tuple([first, second]), 2)


@type_rule("variance")
def infer_variance(call: Inputs) -> Type:
    """Infer from the data and its mean, in which reduced axes are kept."""
    call.count(2)
    data = call.tensor(0)
    call.tensor(1)
    return TensorType(_reduced_shape(call, data), data.dtype)


@converter("variance")
def convert_variance(op: OpCall) -> RelaxExpr:
    """Emit the mean of squared distances from argument 1."""
    axes = _axes(op)
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


@builder("logsumexp")
def logsumexp(data: Expr, axis: Axes = None, keepdims: bool = False) -> Call:
    """Compute log(sum(exp(data))), shifted by the maximum so that it does not overflow."""
    largest = _max(data, axis, True)
    total = _sum(make_call("exp", make_call("subtract", data, largest)), axis, keepdims)
    shift = largest if keepdims else _max(data, axis, False)
    return make_call("add", make_call("log", total), shift)


# ---- cumulative


@builder("cumsum")
def cumsum(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Call:
    """Compute prefix sums along an axis; None flattens the data first."""
    return make_call("cumsum", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


@builder("cumprod")
def cumprod(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Call:
    """Compute prefix products along an axis; None flattens the data first."""
    return make_call("cumprod", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


@type_rule("cumsum", "cumprod")
def infer_cumulative(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis, dtype = call.attrs["axis"], call.attrs["dtype"] or data.dtype
    if axis is None:
        return TensorType((total_size(data.shape),), dtype)
    call.axis(axis, len(data.shape))
    return TensorType(data.shape, dtype)


@converter("cumsum", "cumprod")
def convert_cumulative(op: OpCall) -> RelaxExpr:
    axis, dtype = op.attrs["axis"], op.attrs["dtype"]
    return getattr(relax.op, op.name)(
        op.args[0],
        None if axis is None else int(axis),
        dtype or op.type(0).dtype,
        bool(op.attrs["exclusive"]),
    )

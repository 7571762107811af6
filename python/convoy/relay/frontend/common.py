"""Expressions as importers need them: with types at hand, and constants as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import DynamicShape
from convoy.relay.ast import Constant, Expr, Tuple, TupleWrapper
from convoy.relay.builder import numpy_dtype
from convoy.relay.frontend.converter_names import (  # noqa: F401  (for converters of scripts)
    fold_constant,
    get_relay_op,
    infer_channels,
    infer_value,
    new_var,
    shape_of,
    to_int_list,
    try_infer_value,
    unbind,
)
from convoy.relay.infer.incremental import type_of
from convoy.relay.op import tensor as R
from convoy.relay.types import Any as AnyDim
from convoy.relay.types import TensorType

FLOATS = ("float16", "bfloat16", "float32", "float64")


def infer_type(node: Expr | TupleWrapper, mod: object = None) -> Expr:
    """Return an expression after its type was inferred: `infer_type(node).checked_type`."""
    del mod
    expr = node.astuple() if isinstance(node, TupleWrapper) else node
    type_of(expr)
    return expr


def tensor_type(expr: Expr) -> TensorType:
    """Return the type of an expression that is a tensor."""
    found = type_of(expr)
    if not isinstance(found, TensorType):
        raise TypeError(f"a value of type {found} where a tensor is needed")
    return found


def infer_shape(expr: Expr, mod: object = None) -> tuple[int, ...]:
    """Return the shape of a tensor, all of its sizes known.

    Raises:
        DynamicShape: A size that is known at run time only.
    """
    del mod
    found = tensor_type(expr)
    if not found.is_static:
        raise DynamicShape(
            f"a tensor of type {found}", "sizes", "Give the importer the shapes of the inputs"
        )
    return found.concrete_shape


def dims(expr: Expr) -> tuple[Any, ...]:
    """Return the shape of a tensor, in which unknown sizes are `relay.Any`."""
    return tensor_type(expr).shape


def rank(expr: Expr) -> int:
    """Return the number of dimensions of a tensor."""
    return len(tensor_type(expr).shape)


def dtype_of(expr: Expr) -> str:
    """Return the dtype of a tensor."""
    return tensor_type(expr).dtype


def is_float(expr: Expr) -> bool:
    """Return whether a tensor is of a floating-point dtype."""
    return dtype_of(expr) in FLOATS


def value_of(expr: Any) -> np.ndarray | None:
    """Return the array of a constant, None for any other expression."""
    return expr.value if isinstance(expr, Constant) else None


def const(array: Any) -> Constant:
    """Make a constant of an array, whose dtype it keeps (`relay.const` narrows int64)."""
    return Constant(np.asarray(array))


def scalar(value: Any, dtype: str) -> Constant:
    """Make a 0-d constant of a dtype."""
    return const(np.asarray(value).astype(numpy_dtype(dtype)))


def scalar_like(value: Any, expr: Expr) -> Constant:
    """Make a 0-d constant of the dtype of a tensor."""
    return scalar(value, dtype_of(expr))


def cast(expr: Expr, dtype: str) -> Expr:
    """Cast to a dtype, where the tensor has another one; a constant stays a constant."""
    if dtype_of(expr) == dtype:
        return expr
    value = value_of(expr)
    if value is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            return const(value.astype(numpy_dtype(dtype)))
    return R.cast(expr, dtype)


def reshape(expr: Expr, shape: Sequence[int]) -> Expr:
    """Reshape, where the shape differs; a constant stays a constant."""
    shape = tuple(int(d) for d in shape)
    if dims(expr) == shape:
        return expr
    value = value_of(expr)
    if value is not None:
        return const(value.reshape(shape))
    return R.reshape(expr, shape, allowzero=True) if 0 in shape else R.reshape(expr, shape)


def transpose(expr: Expr, axes: Sequence[int]) -> Expr:
    """Permute axes, where the order differs; a constant stays a constant."""
    axes = tuple(int(a) for a in axes)
    if axes == tuple(range(len(axes))):
        return expr
    value = value_of(expr)
    if value is not None:
        return const(np.ascontiguousarray(value.transpose(axes)))
    return R.transpose(expr, axes)


def swap(expr: Expr, first: int, second: int) -> Expr:
    """Exchange two axes."""
    axes = list(range(rank(expr)))
    axes[first], axes[second] = axes[second], axes[first]
    return transpose(expr, axes)


def unsqueeze(expr: Expr, axes: Sequence[int]) -> Expr:
    """Insert axes of size 1; positions count in the result."""
    total = rank(expr) + len(axes)
    for axis in sorted(a % total for a in axes):
        expr = R.expand_dims(expr, axis)
    return expr


def squeeze(expr: Expr, axes: Sequence[int]) -> Expr:
    """Remove axes of size 1; none of them is the tensor itself."""
    return R.squeeze(expr, axis=tuple(a % rank(expr) for a in axes)) if axes else expr


def broadcast_to(expr: Expr, shape: Sequence[int]) -> Expr:
    """Broadcast to a shape, where it differs."""
    shape = tuple(int(d) for d in shape)
    return expr if dims(expr) == shape else R.broadcast_to(expr, shape)


def slice_axis(expr: Expr, axis: int, begin: int, end: int, stride: int = 1) -> Expr:
    """Slice along one axis."""
    axis %= rank(expr)
    return R.strided_slice(expr, begin=[begin], end=[end], strides=[stride], axes=[axis])


def select(expr: Expr, axis: int, index: int) -> Expr:
    """Take one index of an axis, which goes."""
    size = dims(expr)[axis % rank(expr)]
    if index < 0:
        if not isinstance(size, int):
            return R.take(expr, scalar(index, "int64"), axis=axis % rank(expr), mode="wrap")
        index += size
    return squeeze(slice_axis(expr, axis, index, index + 1), [axis])


def concatenate(parts: Sequence[Expr], axis: int) -> Expr:
    """Join tensors along an axis; one tensor is itself."""
    if len(parts) == 1:
        return parts[0]
    return R.concatenate(list(parts), axis=axis % rank(parts[0]))


def tuple_of(outputs: Sequence[Expr]) -> Expr:
    """Return the one output, or a tuple of all."""
    return outputs[0] if len(outputs) == 1 else Tuple(outputs)


def broadcast_shape(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape that shapes broadcast to; unknown sizes stay unknown."""
    length = max(map(len, shapes))
    result: list[Any] = []
    for axis in range(length):
        found: Any = 1
        for shape in shapes:
            place = axis - length + len(shape)
            if place >= 0 and shape[place] != 1 and (found == 1 or isinstance(found, AnyDim)):
                found = shape[place]
        result.append(found)
    return tuple(result)

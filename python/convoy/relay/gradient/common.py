"""Parts that gradient rules share: types, constants, and sums over broadcast axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Expr, op_call
from convoy.relay.builder import numpy_dtype
from convoy.relay.types import TensorType, TupleType, Type

Derivative = Callable[[Expr, Expr], Expr]


def type_of(expr: Expr) -> TensorType:
    """Return the type of a tensor."""
    found = expr.checked_type
    assert isinstance(found, TensorType), "rules of tensors get tensors"
    return found


def is_float(type_: Type) -> bool:
    """Check for a type with a floating-point tensor in it."""
    if isinstance(type_, TupleType):
        return any(map(is_float, type_.fields))
    return isinstance(type_, TensorType) and type_.dtype.startswith(("float", "bfloat"))


def call(name: str, *args: Expr, **attrs: Any) -> ast.Call:
    """Make a call of an operator."""
    return op_call(name, args, **attrs)


def const(value: Any, dtype: str) -> ast.Constant:
    """Make a constant of a dtype."""
    return ast.Constant(np.asarray(value).astype(numpy_dtype(dtype)))


def scaled(expr: Expr, factor: float, dtype: str) -> Expr:
    """Multiply by a number."""
    return call("multiply", expr, const(factor, dtype))


def like(grad: Expr, arg: Expr, shape: Sequence[Any] | None = None) -> Expr:
    """Sum a gradient over the axes that an argument was broadcast along.

    Args:
        grad: The gradient.
        arg: The argument.
        shape: The shape of `grad`, if that is known.
    """
    wanted = type_of(arg)
    if shape is not None and wanted.is_static and tuple(shape) == wanted.shape:
        return grad
    return call("collapse_sum_like", grad, arg)


def size(type_: TensorType) -> int:
    """Return the number of elements of a tensor of known sizes."""
    return int(np.prod(type_.concrete_shape, dtype=np.int64))


def reduced_axes(node: ast.Call) -> tuple[int, ...]:
    """Return the axes that a reduction sums over, counted from the front."""
    assert node.attrs is not None
    rank = len(type_of(node.args[0]).shape)
    axis = node.attrs["axis"]
    if axis is None:
        return tuple(range(rank))
    listed = tuple(a % rank for a in ((axis,) if isinstance(axis, int) else axis))
    if node.attrs["exclude"]:
        return tuple(a for a in range(rank) if a not in listed)
    return listed if listed or not isinstance(axis, tuple) else tuple(range(rank))


def restored(reduced: Expr, node: ast.Call) -> Expr:
    """Give the result of a reduction, or its gradient, the axes of the data, of size 1."""
    assert node.attrs is not None
    if node.attrs["keepdims"]:
        return reduced
    for axis in sorted(reduced_axes(node)):
        reduced = call("expand_dims", reduced, axis=axis, num_newaxis=1)
    return reduced


def spread(grad: Expr, node: ast.Call) -> Expr:
    """Broadcast the gradient of a reduction to its data."""
    return call("broadcast_to_like", restored(grad, node), node.args[0])

"""Building expressions: variables, constants, scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError
from convoy.ir import dtypes
from convoy.relay import ast
from convoy.relay.ast import Constant, Expr, TupleWrapper, Var
from convoy.relay.source import Span
from convoy.relay.types import TensorType, Type


def var(
    name_hint: str,
    type_annotation: Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Span | None = None,
) -> Var:
    """Make a variable.

    Args:
        name_hint: Its name, without %.
        type_annotation: Its type, or the dtype of a scalar.
        shape, dtype: The type of a tensor, in place of `type_annotation`.
        span: Its place in a text.
    """
    if type_annotation is not None and shape is not None:
        raise ValueError("Can only specify either type_annotation or shape.")
    if shape is not None:
        type_annotation = TensorType(
            [d if not isinstance(d, np.integer) else int(d) for d in shape], dtype
        )
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    return Var(name_hint, type_annotation, span=span)


def const(value: Any, dtype: str | TensorType | None = None, span: Span | None = None) -> Constant:
    """Make a constant.

    Args:
        value: A number, a list, an array or a TVM tensor.
        dtype: The dtype to convert to; None makes float32 of float64 and int32 of int64 (where
            it fits), except of a TVM tensor, which keeps its own. May be given as a tensor type.
        span: Its place in a text.

    Raises:
        RelayTypeError: Something other than numbers.
    """
    if isinstance(dtype, TensorType):
        dtype = dtype.dtype
    if hasattr(value, "numpy"):
        array = value.numpy()
    else:
        array = np.asarray(value)
        if dtype is None:
            dtype = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
            if dtype == "int32" and (array != array.astype(dtype)).any():
                dtype = None
    if dtype is not None:
        array = array.astype(numpy_dtype(dtype))
    if array.dtype.kind not in "fiubV":
        raise RelayTypeError(f"a constant of type {array.dtype}", "numbers")
    return Constant(array, span=span)


def numpy_dtype(dtype: str) -> np.dtype:
    """Return the numpy dtype of a Relay dtype; bfloat16 is that of ml_dtypes.

    Raises:
        RelayTypeError: Numpy has no such dtype.
    """
    try:
        return dtypes.numpy_dtype(dtype)
    except TypeError:
        raise RelayTypeError(f"dtype '{dtype}'", "a dtype such as float32 or int8") from None


class ScopeBuilder:
    """Build nested lets and ifs in the order of statements.

    Example:
        sb = ScopeBuilder()
        with sb.if_scope(cond):
            sb.ret(x)
        with sb.else_scope():
            sb.ret(y)
        body = sb.get()
    """

    def __init__(self) -> None:
        self._bindings: list[list[tuple[Var, Expr]]] = [[]]
        self._ret: list[Expr | None] = [None]
        self._branches: list[list[Expr]] = [[]]

    def let(self, var: Var | str | tuple[str, Type], value: Expr) -> Var:
        """Bind a value to a variable; return the variable."""
        if isinstance(var, tuple):
            var = Var(*var)
        elif isinstance(var, str):
            var = Var(var)
        if isinstance(value, TupleWrapper):
            value = value.astuple()
        self._bindings[-1].append((var, value))
        return var

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """Open the branch taken where `cond` holds."""
        with self._scope():
            yield
        self._branches[-1] = [cond, self._done]

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Open the other branch; follows `if_scope`."""
        if len(self._branches[-1]) != 2:
            raise RuntimeError("else_scope must follow if_scope")
        with self._scope():
            yield
        cond, true = self._branches[-1]
        self._branches[-1] = []
        self._ret[-1] = ast.If(cond, true, self._done)

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._bindings.append([])
        self._ret.append(None)
        self._branches.append([])
        yield
        self._done = self.get()
        self._bindings.pop()
        self._ret.pop()
        self._branches.pop()

    def type_of(self, expr: Expr) -> Type | None:
        """Return the type of an expression, None where it is not known."""
        return expr.type_ if isinstance(expr, Var) else expr.checked_type_

    def ret(self, value: Expr) -> None:
        """Set the value of this scope."""
        if self._ret[-1] is not None:
            raise RuntimeError("ret value can only be set once per scope")
        self._ret[-1] = value

    def get(self) -> Expr:
        """Return the expression that was built."""
        body = self._ret[-1]
        if body is None:
            raise RuntimeError("no return value: call ret first")
        for var_, value in reversed(self._bindings[-1]):
            body = ast.Let(var_, value, body)
        return body

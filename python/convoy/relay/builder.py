"""Building expressions: variables, constants, scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay.ast import Constant, Expr, TupleWrapper, Var
from convoy.relay.source import Span
from convoy.relay.types import TensorType, Type


def var(
    name: str,
    type_annotation: Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Span | None = None,
) -> Var:
    """A variable. A string as annotation is a scalar's dtype; `shape` and `dtype` a tensor's."""
    if type_annotation is not None and shape is not None:
        raise ValueError("Can only specify either type_annotation or shape.")
    if shape is not None:
        type_annotation = TensorType(
            [d if not isinstance(d, np.integer) else int(d) for d in shape], dtype
        )
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    return Var(name, type_annotation, span=span)


def const(value: Any, dtype: str | None = None, span: Span | None = None) -> Constant:
    """A constant: of a number (int is int32, float is float32), an array or a TVM tensor."""
    if isinstance(value, bool | int | float | list | tuple) and not isinstance(value, np.generic):
        array = np.array(value)
        if dtype is None:
            dtype = {"f": "float32", "i": "int32"}.get(array.dtype.kind)
        value = array
    elif not isinstance(value, (np.ndarray, np.generic)):
        value = value.numpy()
    array = np.asarray(value)
    if dtype is not None:
        array = array.astype(numpy_dtype(dtype))
    if array.dtype.kind not in "fiubV":
        raise RelayTypeError(f"a constant of type {array.dtype}", "numbers")
    return Constant(array, span=span)


def numpy_dtype(dtype: str) -> np.dtype:
    """The numpy type of a Relay dtype, bfloat16 among them.

    Raises:
        RelayTypeError: numpy has no such type.
    """
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(dtype)
    except TypeError:
        raise RelayTypeError(f"dtype '{dtype}'", "a dtype such as float32 or int8") from None


class ScopeBuilder:
    """Builds nested lets and ifs in the order of the statements.

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
        """Bind a value; returns the variable."""
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
        with self._scope():
            yield
        self._branches[-1] = [cond, self._done]

    @contextmanager
    def else_scope(self) -> Iterator[None]:
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
        """The type of an expression, where it is known."""
        return expr.type_ if isinstance(expr, Var) else expr.checked_type_

    def ret(self, value: Expr) -> None:
        """The value of this scope."""
        if self._ret[-1] is not None:
            raise RuntimeError("ret value can only be set once per scope")
        self._ret[-1] = value

    def get(self) -> Expr:
        """The expression that was built."""
        body = self._ret[-1]
        if body is None:
            raise RuntimeError("no return value: call ret first")
        for var_, value in reversed(self._bindings[-1]):
            body = ast.Let(var_, value, body)
        return body

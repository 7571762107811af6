"""Relay expressions as plain nodes.

Nodes are immutable and compare by identity: sharing one node is how Relay expresses that a value is
computed once (`%0` used twice). `equality.structural_equal` compares by content. Only
`checked_type_` is written later, by type inference.

Constructor arguments are those of TVM 0.18's `tvm.relay` classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy.relay.attrs import Array
from convoy.relay.function_attrs import FunctionAttrs, plain_value
from convoy.relay.lazy import tvm
from convoy.relay.operator_call import Call, Expr, Op, check_parts, define_op, op, op_call
from convoy.relay.source import Span
from convoy.relay.types import FuncType, IncompleteType, TensorType, Type

__all__ = [
    "Call", "Constant", "Expr", "Function", "GlobalVar", "If", "Let", "Op", "Tuple",
    "TupleGetItem", "TupleWrapper", "Var", "define_op", "dtype_name", "op", "op_call",
]  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    """A local variable `%name`. Two variables of one name are two variables."""

    name_hint: str
    type_annotation: Type | None = None
    span: Span | None = None

    def __repr__(self) -> str:
        return f"Var({self.name_hint}, ty={self.type_})"

    @property
    def vid(self) -> Var:
        """The identity of the variable, which is the variable itself."""
        return self

    @property
    def type_(self) -> Type | None:
        """The inferred type, else the annotation, else None."""
        if self.checked_type_ is not None:
            return self.checked_type_
        return None if isinstance(self.type_annotation, IncompleteType) else self.type_annotation


@dataclass(frozen=True, eq=False, repr=False)
class GlobalVar(Expr):
    """A function of the module, `@name`."""

    name_hint: str
    span: Span | None = None

    def __repr__(self) -> str:
        return f"GlobalVar({self.name_hint})"


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time.

    Attributes:
        value: The numbers; bfloat16 is held as ml_dtypes.bfloat16. May be given as a TVM tensor.
    """

    value: np.ndarray
    span: Span | None = None

    def __post_init__(self) -> None:
        given: Any = self.value
        if not isinstance(given, np.ndarray):
            array = given.numpy() if hasattr(given, "numpy") else np.asarray(given)
            object.__setattr__(self, "value", array)

    @property
    def data(self) -> Any:
        """The value as a TVM tensor, as in TVM 0.18 (`const.data.numpy()`)."""

        return tvm.runtime.tensor(self.value)

    @property
    def tensor_type(self) -> TensorType:
        """The type of the constant."""
        return TensorType(self.value.shape, dtype_name(self.value.dtype))


def dtype_name(dtype: np.dtype) -> str:
    """Spell a numpy dtype as Relay does."""
    name = dtype.name if dtype.names is None else str(dtype)
    return "bool" if name == "bool_" else name


@dataclass(frozen=True, eq=False, repr=False)
class Tuple(Expr):
    """A tuple of expressions."""

    fields: Sequence[Expr]
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", Array(self.fields))
        check_parts("field of a tuple", Expr, *self.fields)

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


@dataclass(frozen=True, eq=False, repr=False)
class TupleGetItem(Expr):
    """One field of a tuple."""

    tuple_value: Expr
    index: int
    span: Span | None = None

    def __post_init__(self) -> None:
        check_parts("tuple", Expr, self.tuple_value)


@dataclass(frozen=True, eq=False, repr=False)
class Let(Expr):
    """`let %var = value; body`: `value` is computed here, before `body`."""

    var: Var
    value: Expr
    body: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        check_parts("variable of a let", Var, self.var)
        check_parts("value or body of a let", Expr, self.value, self.body)


@dataclass(frozen=True, eq=False, repr=False)
class If(Expr):
    """A choice by a scalar bool; both branches have one type."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        parts = self.cond, self.true_branch, self.false_branch
        check_parts("condition or branch of an if", Expr, *parts)


@dataclass(frozen=True, eq=False, repr=False)
class Function(Expr):
    """A function. `attrs` are its own attributes: Primitive, Composite, Compiler, ..."""

    params: Sequence[Var]
    body: Expr
    ret_type: Type | None = None
    type_params: Sequence[Type] = ()
    attrs: Mapping[str, Any] | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", Array(self.params))
        check_parts("parameter", Var, *self.params)
        check_parts("body of a function", Expr, self.body)
        object.__setattr__(self, "type_params", tuple(self.type_params or ()))
        attrs = {key: plain_value(value) for key, value in (self.attrs or {}).items()}
        object.__setattr__(self, "attrs", FunctionAttrs(attrs))

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """Return the function with one more attribute, or with all of a dict."""
        more = dict(key) if isinstance(key, Mapping) else {key: value}
        attrs = {**(self.attrs or {}), **more}
        return Function(self.params, self.body, self.ret_type, self.type_params, attrs)

    def without_attr(self, key: str) -> Function:
        """Return the function without an attribute."""
        attrs = {k: v for k, v in (self.attrs or {}).items() if k != key}
        return Function(self.params, self.body, self.ret_type, self.type_params, attrs)

    @property
    def func_type_annotation(self) -> FuncType | None:
        """The function's type as far as its annotations determine it, or None."""
        types = [p.type_ for p in self.params]
        ret = self.ret_type
        if ret is None or isinstance(ret, IncompleteType) or any(t is None for t in types):
            return None
        return FuncType(types, ret, self.type_params)  # type: ignore[arg-type]


class TupleWrapper:
    """The result of an operator with several results: index it, iterate it, or take its length."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        """Return the expression of the tuple."""
        return self.tuple_value

    def astext(self) -> str:
        """Print the expression of the tuple."""
        return self.tuple_value.astext()

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"Tuple index out of range: {index} of {self.size}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[i] for i in range(self.size))

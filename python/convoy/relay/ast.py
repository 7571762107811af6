"""Relay expressions as plain nodes.

Nodes are immutable and compare by identity: sharing one node is how Relay expresses that a value is
computed once (`%0` used twice). `equality.structural_equal` compares by content. Only
`checked_type_` is written later, by type inference.

Constructor arguments are those of TVM 0.18's `tvm.relay` classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from typing import Any as AnyValue

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay.attrs import Array, Attrs, make_attrs
from convoy.relay.function_attrs import FunctionAttrs, plain_value
from convoy.relay.lazy import tvm
from convoy.relay.print_hook import print_text
from convoy.relay.schema import op_schema
from convoy.relay.source import Span
from convoy.relay.types import FuncType, IncompleteType, TensorType, Type


@dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """Base of all Relay expressions. The last argument of each is its place in a text, `span`.

    Attributes:
        checked_type_: The type that inference found, None before.
    """

    checked_type_: Type | None = field(default=None, init=False)

    if TYPE_CHECKING:  # a field of every subclass, behind its own ones

        @property
        def span(self) -> Span | None:
            """The place of the expression in its text, if it came from one."""

    @property
    def checked_type(self) -> Type:
        """The type that inference found.

        Raises:
            RelayTypeError: If `relay.transform.InferType` (or `parse`) has not seen it yet.
        """
        if self.checked_type_ is None:
            raise RelayTypeError(
                f"a {type(self).__name__} whose type is not known yet",
                remedy="Run relay.transform.InferType()(mod) first",
            )
        return self.checked_type_

    def astext(self, show_meta_data: bool = True, annotate: object = None) -> str:
        """Print the expression as Relay text; free variables come first as `free_var` lines."""
        return print_text(self, show_meta_data)

    def __str__(self) -> str:
        return self.astext(show_meta_data=False)

    def show(self, style: str | None = None, **options: AnyValue) -> None:
        """Print the expression to the terminal; colors and other options are ignored."""
        del style, options
        print(self.astext(show_meta_data=False))

    def same_as(self, other: object) -> bool:
        """Check for the very same node."""
        return self is other

    def __call__(self, *args: Expr) -> Call:
        return Call(self, args)

    def astype(self, dtype: str) -> Call:
        """Cast to another dtype."""
        return op_call("cast", [self], dtype=str(dtype))

    def __neg__(self) -> Call:
        return op_call("negative", [self])

    def __add__(self, other: Expr) -> Call:
        return _binary("add", self, other)

    def __sub__(self, other: Expr) -> Call:
        return _binary("subtract", self, other)

    def __mul__(self, other: Expr) -> Call:
        return _binary("multiply", self, other)

    def __truediv__(self, other: Expr) -> Call:
        return _binary("divide", self, other)

    def __lt__(self, other: Expr) -> Call:
        return _binary("less", self, other)

    def __le__(self, other: Expr) -> Call:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Expr) -> Call:
        return _binary("greater", self, other)

    def __ge__(self, other: Expr) -> Call:
        return _binary("greater_equal", self, other)

    def _refuse_number(self, other: object) -> Expr:
        raise TypeError(f'convert "{other}" with `const` first')

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _refuse_number


def _binary(name: str, lhs: Expr, rhs: object) -> Call:
    if not isinstance(rhs, Expr):
        raise TypeError(f'convert "{rhs}" with `const` first')
    return op_call(name, [lhs, rhs])


@dataclass(frozen=True, eq=False, repr=False)
class Op(Expr):
    """A built-in operator. `op("nn.conv2d")` returns it: there is one node for each name."""

    name: str
    span: Span | None = None

    @property
    def num_inputs(self) -> int:
        """The number of arguments that a call has."""
        return len(op_schema(self.name).inputs)

    def get_attr(self, attr_name: str) -> AnyValue:
        """Return what was registered for the operator under a key, or None."""
        return _op_attributes.get((self.name, attr_name), (None, 0))[0]

    def has_attr(self, attr_name: str) -> bool:
        """Check whether something is registered for the operator under a key."""
        return (self.name, attr_name) in _op_attributes

    def set_attr(self, attr_name: str, value: AnyValue, plevel: int = 10) -> None:
        """Register a value under a key; one of a higher level stays.

        Raises:
            RelayTypeError: There is a value of the same level already.
        """
        _, level = _op_attributes.get((self.name, attr_name), (None, -1))
        if level == plevel:
            raise RelayTypeError(
                f"attribute {attr_name} of {self.name} at level {plevel}, which is registered",
                remedy="Call reset_attr first, or pass a higher level",
            )
        if level < plevel:
            _op_attributes[self.name, attr_name] = (value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Forget what is registered under a key."""
        _op_attributes.pop((self.name, attr_name), None)


# Values and their levels by operator and key: functions of users that passes call (`FTVMLegalize`).
_op_attributes: dict[tuple[str, str], tuple[AnyValue, int]] = {}


# The one node of each operator.
_ops: dict[str, Op] = {}


def define_op(node: Op) -> None:
    """Make a node the one of its operator."""
    _ops[node.name] = node


def op(name: str) -> Op:
    """Return the one node of a known operator.

    Raises:
        UnsupportedOp: Relay has no such operator; the message suggests near names.
    """
    if name not in _ops:
        op_schema(name)
        _ops[name] = Op(name)
    return _ops[name]


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    """A local variable `%name`. Two variables of one name are two variables."""

    name_hint: str
    type_annotation: Type | None = None
    span: Span | None = None

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


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time.

    Attributes:
        value: The numbers; bfloat16 is held as ml_dtypes.bfloat16. May be given as a TVM tensor.
    """

    value: np.ndarray
    span: Span | None = None

    def __post_init__(self) -> None:
        given: AnyValue = self.value
        if not isinstance(given, np.ndarray):
            array = given.numpy() if hasattr(given, "numpy") else np.asarray(given)
            object.__setattr__(self, "value", array)

    @property
    def data(self) -> AnyValue:
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
class Call(Expr):
    """A call of an operator, a global function, a local function or a variable.

    `checked_type` is the type of the result.
    """

    op: Expr
    args: Sequence[Expr]
    attrs: Attrs | None = None
    type_args: Sequence[Type] = ()
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", Array(self.args))
        object.__setattr__(self, "type_args", tuple(self.type_args or ()))


@dataclass(frozen=True, eq=False, repr=False)
class Tuple(Expr):
    """A tuple of expressions."""

    fields: Sequence[Expr]
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", Array(self.fields))

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


@dataclass(frozen=True, eq=False, repr=False)
class Let(Expr):
    """`let %var = value; body`: `value` is computed here, before `body`."""

    var: Var
    value: Expr
    body: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, repr=False)
class If(Expr):
    """A choice by a scalar bool; both branches have one type."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Function(Expr):
    """A function. `attrs` are its own attributes: Primitive, Composite, Compiler, ..."""

    params: Sequence[Var]
    body: Expr
    ret_type: Type | None = None
    type_params: Sequence[Type] = ()
    attrs: Mapping[str, AnyValue] | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", Array(self.params))
        object.__setattr__(self, "type_params", tuple(self.type_params or ()))
        attrs = {key: plain_value(value) for key, value in (self.attrs or {}).items()}
        object.__setattr__(self, "attrs", FunctionAttrs(attrs))

    def with_attr(self, key: str | Mapping[str, AnyValue], value: AnyValue = None) -> Function:
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


def op_call(name: str, args: Sequence[Expr], /, **attrs: AnyValue) -> Call:
    """Make a call of an operator by name, its attributes completed with the C++ defaults."""
    return Call(op(name), tuple(args), make_attrs(name, attrs))


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

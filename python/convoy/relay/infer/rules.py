"""What a type rule sees of a call, and the registry of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import ConvoyError, RelayTypeError
from convoy.relay.ast import Call, Op
from convoy.relay.attrs import Attrs, complete_attrs
from convoy.relay.layout import Layout, layout
from convoy.relay.schema import op_schema
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


class Undetermined(Exception):
    """The type of an argument is needed and not known yet."""


class Inputs:
    """The arguments of a call, as a rule sees them.

    Attributes:
        types: per argument its type, None while it is not known.
        assigned: types that the rule found for arguments, by position.
    """

    def __init__(self, call: Call, types: Sequence[Type | None]) -> None:
        assert isinstance(call.op, Op)
        self.call, self.name = call, call.op.name
        self.types = list(types)
        self.assigned: dict[int, Type] = {}

    @property
    def attrs(self) -> Attrs:
        found, wanted = self.call.attrs, op_schema(self.name).attrs
        if found is None:
            raise self.error("a call without attributes")
        # Saved files can give a call attributes of any class.
        if wanted is not None and not found.keys() >= set(wanted.field_names):
            raise self.error(f"attributes of class {found.type_key}", wanted.type_key)
        if wanted is not None and found.cls is not wanted:  # of these names, but of these kinds?
            complete_attrs(wanted, {name: found[name] for name in wanted.field_names}, self.name)
        return found

    def error(self, got: str, expected: str = "") -> RelayTypeError:
        return RelayTypeError(f"{self.name}: {got}", expected)

    def count(self, number: int) -> None:
        """Check the number of arguments."""
        if len(self.types) != number:
            raise self.error(f"{len(self.types)} arguments", str(number))

    def type(self, index: int) -> Type:
        if index >= len(self.types):
            raise self.error(f"{len(self.types)} arguments", f"at least {index + 1}")
        found = self.types[index]
        if found is None:
            raise Undetermined
        return found

    def tensor(self, index: int, ndim: int | None = None) -> TensorType:
        """The type of a tensor argument; of `ndim` dimensions where that is given."""
        found = self.type(index)
        if not isinstance(found, TensorType):
            raise self.error(f"argument {index} is {found}", "a tensor")
        if ndim is not None and len(found.shape) != ndim:
            raise self.error(f"argument {index} is {found}", f"a tensor of {ndim} dimensions")
        return found

    def known(self, index: int) -> TensorType | None:
        """As `tensor`, but None while the type is not known."""
        if index < len(self.types) and self.types[index] is None:
            return None
        return self.tensor(index)

    def tensors(self, index: int) -> list[TensorType]:
        """The fields of an argument that is a tuple of tensors."""
        found = self.type(index)
        if not isinstance(found, TupleType):
            raise self.error(f"argument {index} is {found}", "a tuple of tensors")
        for field in found.fields:
            if not isinstance(field, TensorType):
                raise self.error(f"argument {index} has a {field}", "tensors only")
        return list(found.fields)  # type: ignore[arg-type]

    def expect(self, index: int, wanted: TensorType) -> None:
        """The argument must be of this type; gives it the type where it has none yet."""
        found = self.known(index)
        if found is None:
            self.types[index] = self.assigned[index] = wanted
        elif found.dtype != wanted.dtype or not same_shape(found.shape, wanted.shape):
            raise self.error(f"argument {index} is {found}", str(wanted))

    def ints(self, field: str, length: int | None = None) -> tuple[int, ...]:
        """An array attribute of plain integers, of `length` elements where that is given."""
        value = self.attrs[field]
        if value is None or any(not isinstance(v, int) for v in value):
            raise self.error(f"{field}={value}", "an array of integers")
        if length is not None and len(value) != length:
            raise self.error(f"{field}={list(value)}", f"{length} values")
        return tuple(value)

    def positive(self, field: str, length: int) -> tuple[int, ...]:
        """As `ints`, all over zero."""
        value = self.ints(field, length)
        if any(v <= 0 for v in value):
            raise self.error(f"{field}={list(value)}", "values over zero")
        return value

    def axis(self, axis: int, ndim: int) -> int:
        """An axis counted from the front."""
        if not -ndim <= axis < ndim:
            raise self.error(f"axis {axis} of a tensor of {ndim} dimensions")
        return axis % ndim

    def layout(self, name: str, axes: str) -> Layout:
        try:
            return layout(name, axes)
        except ConvoyError as error:
            raise type(error)(f"{self.name}: {error.got}", error.expected, error.remedy) from None

    def out_dtype(self, fallback: str) -> str:
        return self.attrs["out_dtype"] or fallback


Rule = Callable[[Inputs], Type]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the type rule of operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions can be the same size; an unknown one can be any."""
    return a == b or not isinstance(a, int) or not isinstance(b, int)


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(map(same_dim, a, b))


def compatible(a: Type, b: Type) -> bool:
    """Whether a value of type `a` can stand where `b` is declared."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype == b.dtype and same_shape(a.shape, b.shape)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(compatible, a.fields, b.fields))
    return a == b


def broadcast_dim(a: Dim, b: Dim) -> Dim | None:
    """The size of two dimensions broadcast together, None if they do not fit."""
    if a == b:
        return a
    if a == 1:
        return b
    if b == 1:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return None
    known = a if isinstance(a, int) else b
    return known if isinstance(known, int) else DynamicDim()


def broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The shape of two shapes broadcast together, None if they do not fit."""
    n = max(len(a), len(b))
    pairs = zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b), strict=False)
    out = [broadcast_dim(x, y) for x, y in pairs]
    return None if any(d is None for d in out) else tuple(out)  # type: ignore[arg-type]


def is_int(*dims: Any) -> bool:
    return all(isinstance(d, int) for d in dims)

"""Relay types: tensors, tuples, functions, and types still to be inferred.

Types are plain values: they compare and hash by content. A dimension is an `int`, an `Any`
(printed `?`, a size known only at run time) or a `SymbolicDim` (a named size).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from numbers import Integral
from typing import Any as AnyValue

from convoy.errors import DynamicShape, RelayTypeError
from convoy.relay.lazy import sym


@dataclass(frozen=True)
class Any:
    """A dimension whose size is known only at run time."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True)
class SymbolicDim:
    """A named dimension (`tir.Var` or `tir.SizeVar` in saved modules)."""

    name: str
    dtype: str = "int32"

    def __str__(self) -> str:
        return self.name


Dim = int | Any | SymbolicDim


# Types beyond these are written by nothing. Python compares and prints types by recursion, and a
# tuple that holds another one twice, sixty times over, would take all memory to print.
_MAX_DEPTH = 100
_MAX_SIZE = 200_000


class Type:
    """Base of all Relay types.

    Attributes:
        depth: How deep tuples and functions nest in it.
        size: The number of types in it, itself included.
    """

    depth = 0
    size = 1

    def _measure(self, parts: Sequence[Type]) -> None:
        """Set depth and size from those of the parts.

        Raises:
            RelayTypeError: A type beyond the limits.
        """
        depth = 1 + max((p.depth for p in parts), default=0)
        size = 1 + sum(p.size for p in parts)
        if depth > _MAX_DEPTH or size > _MAX_SIZE:
            raise RelayTypeError(
                f"a type nested {depth} deep with {size} parts",
                f"at most {_MAX_DEPTH} deep with {_MAX_SIZE} parts",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "size", size)


# TVM's short names.
_DTYPES = {"int": "int32", "uint": "uint32", "float": "float32", "uint1": "bool"}


class Size(int):
    """A known size: an integer, with the `value` that scripts ask TVM's IntImm for."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """The integer."""
        return int(self)


def _dim(size: AnyValue) -> AnyValue:
    """Return a dimension; numpy's integers and TVM's IntImm become integers."""
    if type(size) is Size:
        return size
    value = getattr(size, "value", size)
    return Size(value) if isinstance(value, Integral) else size


def _same_size(a: AnyValue, b: AnyValue) -> bool:
    """Check whether two dimensions are equal; expressions of variables are proved to be."""
    plain = (int, Any, SymbolicDim)
    if isinstance(a, plain) or isinstance(b, plain):
        return isinstance(a, plain) and isinstance(b, plain) and a == b
    return a is b or bool(sym.Analyzer().can_prove_equal(a, b))


@dataclass(frozen=True, eq=False)
class TensorType(Type):
    """The type of a tensor; `shape == ()` is a scalar."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"

    def __init__(self, shape: Sequence[Dim] = (), dtype: str = "float32") -> None:
        object.__setattr__(self, "shape", tuple(map(_dim, shape)))
        name = str(dtype)
        object.__setattr__(self, "dtype", _DTYPES.get(name, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        if self.dtype != other.dtype or len(self.shape) != len(other.shape):
            return False
        return all(map(_same_size, self.shape, other.shape))

    def __hash__(self) -> int:
        sizes = (d if isinstance(d, int) else None for d in self.shape)
        return hash((self.dtype, *sizes))

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as plain integers; raises DynamicShape if a dimension is not known."""
        if not self.is_static:
            raise DynamicShape(str(self), "known sizes")
        return tuple(int(d) for d in self.shape)  # type: ignore[arg-type]

    @property
    def is_static(self) -> bool:
        """Whether all dimensions are known sizes."""
        return all(isinstance(d, int) for d in self.shape)

    def __str__(self) -> str:
        if not self.shape:
            return self.dtype
        return f"Tensor[({', '.join(map(str, self.shape))}), {self.dtype}]"


@dataclass(frozen=True)
class TupleType(Type):
    """A tuple of types; `()` is the unit type."""

    fields: tuple[Type, ...]

    def __init__(self, fields: Sequence[Type] = ()) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        self._measure(self.fields)

    def __str__(self) -> str:
        if len(self.fields) == 1:
            return f"({self.fields[0]},)"
        return f"({', '.join(map(str, self.fields))})"


class TypeKind(IntEnum):
    """Kind of thing that a type variable stands for."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


@dataclass(frozen=True)
class TypeVar(Type):
    """A type parameter of a polymorphic function: `A` in `fn [A](%x: A) -> A`."""

    name_hint: str
    kind: int = 0

    def __str__(self) -> str:
        return self.name_hint


@dataclass(frozen=True, eq=False)
class FuncType(Type):
    """The type of a function."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple[AnyValue, ...] = ()

    def __init__(
        self,
        arg_types: Sequence[Type],
        ret_type: Type,
        type_params: Sequence[TypeVar] = (),
        type_constraints: Sequence[AnyValue] = (),
    ) -> None:
        # Relations have no meaning to inference here; `check_kind` looks at them.
        object.__setattr__(self, "type_constraints", tuple(type_constraints or ()))
        object.__setattr__(self, "arg_types", tuple(arg_types))
        object.__setattr__(self, "ret_type", ret_type)
        object.__setattr__(self, "type_params", tuple(type_params))
        self._measure((*self.arg_types, ret_type))

    def __str__(self) -> str:
        params = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return f"fn {params}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"

    def __eq__(self, other: object) -> bool:
        """Compare up to the names of type parameters."""
        if not isinstance(other, FuncType) or len(self.type_params) != len(other.type_params):
            return False
        constraints = other.type_constraints
        if self.type_params != other.type_params:
            pairs = list(zip(other.type_params, self.type_params, strict=True))
            if any(a.kind != b.kind for a, b in pairs):
                return False
            names = dict(pairs)
            other = replace_types(other, names)
            assert isinstance(other, FuncType)
            constraints = tuple(_renamed(c, names) for c in constraints)
        if self.arg_types != other.arg_types or self.ret_type != other.ret_type:
            return False
        return self.type_constraints == constraints

    def __hash__(self) -> int:
        return hash((len(self.arg_types), len(self.type_params)))


@dataclass(frozen=True)
class GlobalTypeVar(Type):
    """The name of an algebraic data type; calling it with types makes a type: `List(A)`."""

    name_hint: str
    kind: int = TypeKind.AdtHandle

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)

    def __str__(self) -> str:
        return self.name_hint


@dataclass(frozen=True)
class TypeCall(Type):
    """An algebraic data type of certain types: `List[Tensor[(3), float32]]`."""

    func: Type
    args: tuple[Type, ...]

    def __init__(self, func: Type, args: Sequence[Type] = ()) -> None:
        object.__setattr__(self, "func", func)
        object.__setattr__(self, "args", tuple(args))
        self._measure((func, *self.args))

    def __str__(self) -> str:
        return f"{self.func}[{', '.join(map(str, self.args))}]" if self.args else str(self.func)


@dataclass(frozen=True)
class RefType(Type):
    """The type of a reference."""

    value: Type

    def __post_init__(self) -> None:
        self._measure((self.value,))

    def __str__(self) -> str:
        return f"ref({self.value})"


@dataclass(frozen=True)
class TypeRelation(Type):
    """A relation between types, as TVM 0.18 has it in function types; inference does not use it.

    Attributes:
        func: The relation.
        args: The types.
        num_inputs: How many of them are inputs.
        attrs: Attributes.
    """

    func: AnyValue
    args: tuple[Type, ...]
    num_inputs: int = 0
    attrs: AnyValue = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))


def _renamed(relation: AnyValue, names: Mapping[TypeVar, Type]) -> AnyValue:
    """Replace type variables in a relation."""
    if not isinstance(relation, TypeRelation):
        return relation
    args = tuple(replace_types(a, names) for a in relation.args)
    return TypeRelation(relation.func, args, relation.num_inputs, relation.attrs)


@dataclass(frozen=True, eq=False)
class IncompleteType(Type):
    """A type still to be inferred, printed `_`: equal to itself alone.

    Attributes:
        kind: A TypeKind.
    """

    kind: int = 0

    def __str__(self) -> str:
        return "_"


def scalar_type(dtype: str) -> TensorType:
    """Return the type of a 0-d tensor."""
    return TensorType((), dtype)


def type_parts(type_: Type) -> Sequence[Type]:
    """Return the types directly inside a type."""
    if isinstance(type_, TupleType):
        return type_.fields
    if isinstance(type_, FuncType):
        return (*type_.arg_types, type_.ret_type)
    if isinstance(type_, TypeCall):
        return (type_.func, *type_.args)
    return (type_.value,) if isinstance(type_, RefType) else ()


def with_parts(type_: Type, parts: Sequence[Type]) -> Type:
    """Return a type with other types directly inside."""
    if isinstance(type_, TupleType):
        return TupleType(parts)
    if isinstance(type_, FuncType):
        return FuncType(parts[:-1], parts[-1], type_.type_params)
    if isinstance(type_, TypeCall):
        return TypeCall(parts[0], parts[1:])
    return RefType(parts[0]) if isinstance(type_, RefType) else type_


def replace_types(type_: Type, found: Mapping[TypeVar, Type]) -> Type:
    """Replace type variables in a type."""
    if isinstance(type_, TypeVar):
        return found.get(type_, type_)
    parts = type_parts(type_)
    return with_parts(type_, [replace_types(p, found) for p in parts]) if parts else type_

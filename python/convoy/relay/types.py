"""Relay types: tensors, tuples, functions, and types still to be inferred.

Types are plain values: they compare and hash by content. A dimension is an `int`, an `Any`
(printed `?`, a size known only at run time) or a `SymbolicDim` (a named size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any as AnyValue

from convoy.errors import RelayTypeError


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


def _dim(size: AnyValue) -> AnyValue:
    """Return a dimension; numpy's integers and TVM's IntImm become int."""
    if isinstance(size, int):
        return int(size)
    value = getattr(size, "value", size)
    return int(value) if isinstance(value, Integral) else size


@dataclass(frozen=True)
class TensorType(Type):
    """The type of a tensor; `shape == ()` is a scalar."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"

    def __init__(self, shape: Sequence[Dim] = (), dtype: str = "float32") -> None:
        object.__setattr__(self, "shape", tuple(map(_dim, shape)))
        name = str(dtype)
        object.__setattr__(self, "dtype", "bool" if name == "uint1" else name)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as plain integers; raises `TypeError` if a dimension is dynamic."""
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


@dataclass(frozen=True)
class TypeVar(Type):
    """A type parameter of a polymorphic function: `A` in `fn [A](%x: A) -> A`."""

    name_hint: str
    kind: int = 0

    def __str__(self) -> str:
        return self.name_hint


@dataclass(frozen=True)
class FuncType(Type):
    """The type of a function."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()

    def __init__(
        self,
        arg_types: Sequence[Type],
        ret_type: Type,
        type_params: Sequence[TypeVar] = (),
        type_constraints: Sequence[object] = (),
    ) -> None:
        del type_constraints  # Relay never uses them; accepted as in TVM 0.18
        object.__setattr__(self, "arg_types", tuple(arg_types))
        object.__setattr__(self, "ret_type", ret_type)
        object.__setattr__(self, "type_params", tuple(type_params))
        self._measure((*self.arg_types, ret_type))

    def __str__(self) -> str:
        params = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return f"fn {params}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"


@dataclass(frozen=True)
class IncompleteType(Type):
    """A type still to be inferred, printed `_`."""

    def __str__(self) -> str:
        return "_"


def scalar_type(dtype: str) -> TensorType:
    """Return the type of a 0-d tensor."""
    return TensorType((), dtype)

"""Unification: types with holes that later types fill."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import RelayTypeError
from convoy.relay.shapes import compatible
from convoy.relay.types import (
    FuncType,
    IncompleteType,
    TensorType,
    Type,
    TypeVar,
    replace_types,
    type_parts,
    with_parts,
)


class Hole(Type):
    """A type that is not known yet.

    Attributes:
        found: The type that fills it.
    """

    def __init__(self) -> None:
        self.found: Type | None = None

    def __str__(self) -> str:
        return "_" if self.found is None else str(self.found)


def shallow(type_: Type) -> Type:
    """Return what fills a hole, down to a type or an empty hole."""
    while isinstance(type_, Hole) and type_.found is not None:
        type_ = type_.found
    return type_


def filled(type_: Type) -> Type:
    """Return a type with what fills its holes in their places."""
    type_ = shallow(type_)
    parts = type_parts(type_)
    return with_parts(type_, [filled(p) for p in parts]) if parts else type_


def resolved(type_: Type) -> Type:
    """Return a type with its holes filled; empty ones become IncompleteType."""
    type_ = shallow(type_)
    if isinstance(type_, Hole):
        return IncompleteType()
    parts = type_parts(type_)
    return with_parts(type_, [resolved(p) for p in parts]) if parts else type_


def is_known(type_: Type) -> bool:
    """Check for a type without holes."""
    type_ = shallow(type_)
    return not isinstance(type_, Hole) and all(map(is_known, type_parts(type_)))


def with_holes(type_: Type | None) -> Type:
    """Return a written type with holes for what it leaves open."""
    if type_ is None or isinstance(type_, IncompleteType):
        return Hole()
    parts = type_parts(type_)
    return with_parts(type_, [with_holes(p) for p in parts]) if parts else type_


def instantiated(type_: Type) -> Type:
    """Return a function type with holes for its type parameters."""
    type_ = shallow(type_)
    if not isinstance(type_, FuncType) or not type_.type_params:
        return type_
    fresh: dict[TypeVar, Type] = {v: Hole() for v in type_.type_params}
    args: Sequence[Type] = [replace_types(filled(a), fresh) for a in type_.arg_types]
    return FuncType(args, replace_types(filled(type_.ret_type), fresh))


def unify(a: Type, b: Type) -> None:
    """Make two types one, by filling holes.

    Raises:
        RelayTypeError: They differ.
    """
    stack = [(a, b)]
    while stack:
        left, right = (instantiated(t) for t in stack.pop())
        if left is right:
            continue
        if isinstance(left, Hole):
            _fill(left, right)
        elif isinstance(right, Hole):
            _fill(right, left)
        elif isinstance(left, TensorType) or not type_parts(left):
            if left != right and not compatible(left, right):
                raise _differ(a, b)
        else:
            parts, others = type_parts(left), type_parts(right)
            if type(left) is not type(right) or len(parts) != len(others):
                raise _differ(a, b)
            stack.extend(zip(parts, others, strict=True))


def _fill(hole: Hole, type_: Type) -> None:
    stack = [type_]
    while stack:
        part = shallow(stack.pop())
        if part is hole:
            raise RelayTypeError("a type that contains itself")
        stack.extend(type_parts(part))
    hole.found = type_


def _differ(a: Type, b: Type) -> RelayTypeError:
    return RelayTypeError(f"a value of type {resolved(a)}", str(resolved(b)))

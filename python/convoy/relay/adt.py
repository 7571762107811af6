"""Algebraic data types, `match`, and references, under the names of TVM 0.18's `tvm.relay`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay.ast import Expr, Var
from convoy.relay.source import Span
from convoy.relay.types import GlobalTypeVar, Type, TypeKind, TypeVar


@dataclass(frozen=True, eq=False, repr=False)
class Constructor(Expr):
    """A constructor of an algebraic data type; calling it makes a call.

    Attributes:
        name_hint: Its name.
        inputs: The types of its fields.
        belong_to: The data type.
        tag: Its number, unique in a module; -1 before its type is added to one.
    """

    name_hint: str
    inputs: Sequence[Type]
    belong_to: GlobalTypeVar
    tag: int = -1
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))


@dataclass(frozen=True, eq=False)
class TypeData(Type):
    """The definition of an algebraic data type: `type List[A] { Cons(A, List[A]), Nil }`."""

    header: GlobalTypeVar
    type_vars: Sequence[TypeVar]
    constructors: Sequence[Constructor]

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_vars", tuple(self.type_vars))
        object.__setattr__(self, "constructors", tuple(self.constructors))


# Patterns that nest deeper are written by nothing; they are compared and printed by recursion.
_MAX_DEPTH = 100


class Pattern:
    """Base of the patterns of a match; not to be confused with those of `dataflow_pattern`.

    Attributes:
        depth: How deep constructors and tuples nest in it.
    """

    depth = 0

    def _hold(self, patterns: Sequence[Pattern] | None) -> None:
        """Set the patterns inside, as a tuple.

        Raises:
            RelayTypeError: A pattern nested too deep.
        """
        inner = tuple(patterns or ())
        depth = 1 + max((p.depth for p in inner), default=0)
        if depth > _MAX_DEPTH:
            raise RelayTypeError(f"a pattern nested {depth} deep", f"at most {_MAX_DEPTH}")
        object.__setattr__(self, "patterns", inner)
        object.__setattr__(self, "depth", depth)


@dataclass(frozen=True, eq=False)
class PatternWildcard(Pattern):
    """`_`: anything."""


@dataclass(frozen=True, eq=False)
class PatternVar(Pattern):
    """`%x`: anything, bound to a variable."""

    var: Var


@dataclass(frozen=True, eq=False)
class PatternConstructor(Pattern):
    """`Cons(%head, _)`: a value of a constructor."""

    constructor: Constructor
    patterns: Sequence[Pattern] = ()

    def __post_init__(self) -> None:
        self._hold(self.patterns)


@dataclass(frozen=True, eq=False)
class PatternTuple(Pattern):
    """`(%a, %b)`: a tuple."""

    patterns: Sequence[Pattern] = ()

    def __post_init__(self) -> None:
        self._hold(self.patterns)


@dataclass(frozen=True, eq=False)
class Clause:
    """`lhs => rhs` of a match."""

    lhs: Pattern
    rhs: Expr


@dataclass(frozen=True, eq=False, repr=False)
class Match(Expr):
    """`match (data) { clauses }`: the first clause whose pattern fits; `match?` if not complete."""

    data: Expr
    clauses: Sequence[Clause]
    complete: bool = True
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clauses", tuple(self.clauses))


@dataclass(frozen=True, eq=False, repr=False)
class RefCreate(Expr):
    """`ref(value)`: a new reference."""

    value: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RefRead(Expr):
    """`ref_read(ref)`: the value of a reference."""

    ref: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RefWrite(Expr):
    """`ref_write(ref, value)`: set a reference; gives the empty tuple."""

    ref: Expr
    value: Expr
    span: Span | None = None


def pattern_vars(pattern: Pattern) -> Iterator[Var]:
    """Yield the variables that a pattern binds, from left to right."""
    stack = [pattern]
    while stack:
        part = stack.pop()
        if isinstance(part, PatternVar):
            yield part.var
        elif isinstance(part, (PatternConstructor, PatternTuple)):
            stack.extend(reversed(part.patterns))


class ADT(list[Any]):
    """The fields of a tuple, or of a value of an algebraic data type.

    Attributes:
        tag: The number of the constructor; 0 for a tuple.
    """

    def __init__(self, tag: int, fields: Iterable[Any]) -> None:
        super().__init__(fields)
        self.tag = int(tag)

    @property
    def fields(self) -> list[Any]:
        """The fields."""
        return self


class ConstructorValue(ADT):
    """A value of an algebraic data type.

    Args:
        tag: The constructor's tag.
        fields: Tensors, tuples or other values.
        constructor: The constructor, for printing and for matching by name.
    """

    def __init__(
        self, tag: int, fields: Iterable[Any], constructor: Constructor | None = None
    ) -> None:
        super().__init__(tag, fields)
        self.constructor = constructor

    def __repr__(self) -> str:
        name = self.constructor.name_hint if self.constructor is not None else f"tag {self.tag}"
        return f"ConstructorValue({name}, {len(self)} fields)"


class RefValue:
    """A reference at run time.

    Attributes:
        value: What it refers to.
    """

    def __init__(self, value: object) -> None:
        self.value = value


def tag_of(header: GlobalTypeVar, index: int) -> int:
    """Return the tag of a type's constructor: its number, under a hash of the type's name."""
    folded = 0
    for byte in header.name_hint.encode():
        folded = (folded * 31 + byte) & 0x7F
    return folded << 24 | index


def check_definition(data: TypeData) -> None:
    """Check that constructors belong to their type.

    Raises:
        RelayTypeError: One belongs to another type, or has the name of another one.
    """
    names = [c.name_hint for c in data.constructors]
    for constructor in data.constructors:
        if constructor.belong_to != data.header:
            raise RelayTypeError(
                f"constructor {constructor.name_hint} of {constructor.belong_to} in {data.header}"
            )
        if names.count(constructor.name_hint) > 1:
            raise RelayTypeError(f"two constructors {constructor.name_hint} in {data.header}")


__all__ = [
    "ADT",
    "Clause",
    "Constructor",
    "ConstructorValue",
    "Match",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefValue",
    "RefWrite",
    "TypeData",
    "TypeKind",
]

"""Nodes of algebraic data types, matches and references, for the writer."""

from __future__ import annotations

from typing import Any

from convoy.relay import adt
from convoy.relay import types as ty
from convoy.relay.json_format.fields import Fields, Raw

_SPAN: Fields = [("span", None)]


def describe_data_type(value: Any) -> tuple[str, Fields] | None:
    """Return the type key and the fields of a type, clause or pattern, None for other values."""
    if isinstance(value, adt.TypeData):
        parts = [(f, getattr(value, f)) for f in ("header", "type_vars", "constructors")]
        return "relay.TypeData", [*parts, *_SPAN]
    if isinstance(value, ty.GlobalTypeVar):
        kind = ("kind", Raw(int(value.kind)))
        return "GlobalTypeVar", [("name_hint", value.name_hint), kind, *_SPAN]
    if isinstance(value, ty.TypeCall):
        return "TypeCall", [("func", value.func), ("args", value.args), *_SPAN]
    if isinstance(value, ty.RefType):
        return "relay.RefType", [("value", value.value), *_SPAN]
    if isinstance(value, adt.Clause):
        return "relay.Clause", [("lhs", value.lhs), ("rhs", value.rhs)]
    if isinstance(value, adt.PatternVar):
        return "relay.PatternVar", [("var", value.var), *_SPAN]
    if isinstance(value, adt.PatternTuple):
        return "relay.PatternTuple", [("patterns", value.patterns), *_SPAN]
    if isinstance(value, adt.PatternConstructor):
        parts = [("constructor", value.constructor), ("patterns", value.patterns)]
        return "relay.PatternConstructor", [*parts, *_SPAN]
    return ("relay.PatternWildcard", _SPAN) if isinstance(value, adt.Pattern) else None


def describe_data_expr(value: Any, end: Fields) -> tuple[str, Fields] | None:
    """Return the type key and the fields of an expression, None for other expressions.

    Args:
        value: The expression.
        end: The fields that all expressions have.
    """
    if isinstance(value, adt.Constructor):
        head: Fields = [("name_hint", value.name_hint), ("inputs", value.inputs)]
        return "relay.Constructor", [
            *head,
            ("belong_to", value.belong_to),
            ("tag", Raw(value.tag)),
            *end,
        ]
    if isinstance(value, adt.Match):
        clauses = [("data", value.data), ("clauses", value.clauses)]
        return "relay.Match", [*clauses, ("complete", Raw(int(value.complete))), *end]
    if isinstance(value, adt.RefCreate):
        return "relay.RefCreate", [("value", value.value), *end]
    if isinstance(value, adt.RefRead):
        return "relay.RefRead", [("ref", value.ref), *end]
    if isinstance(value, adt.RefWrite):
        return "relay.RefWrite", [("ref", value.ref), ("value", value.value), *end]
    return None

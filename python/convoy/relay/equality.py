"""Structural equality of modules, expressions and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.module import IRModule
from convoy.relay.types import IncompleteType, Type
from convoy.relay.visit import children

# Attributes that went through float32 equal themselves, as in TVM.
_CLOSE = 1e-9


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Compare two modules or expressions up to the names of local variables.

    Sharing counts: a value computed once differs from the same value computed twice. Spans and
    inferred types do not count. Free variables are matched by their place, with or without
    `map_free_vars`.
    """
    del map_free_vars
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        if lhs.type_definitions.keys() != rhs.type_definitions.keys():
            return False
        return set(lhs) == set(rhs) and all(structural_equal(lhs[n], rhs[n]) for n in lhs)
    if not (isinstance(lhs, Expr) and isinstance(rhs, Expr)):
        return bool(lhs == rhs)
    forward: dict[int, Expr] = {}
    backward: dict[int, Expr] = {}
    stack: list[tuple[Expr, Expr]] = [(lhs, rhs)]
    while stack:
        a, b = stack.pop()
        if _is_unit(a) and _is_unit(b):
            continue
        if id(a) in forward or id(b) in backward:
            if forward.get(id(a)) is not b or backward.get(id(b)) is not a:
                if _is_leaf(a) and _is_leaf(b) and _same_node(a, b):
                    continue
                return False
            continue
        if type(a) is not type(b) or not _same_node(a, b):
            return False
        forward[id(a)], backward[id(b)] = b, a
        if isinstance(a, adt.Match) and isinstance(b, adt.Match):
            pairs = zip(a.clauses, b.clauses, strict=True)
            if not all(_same_pattern(x.lhs, y.lhs, stack) for x, y in pairs):
                return False
        left, right = children(a), children(b)
        if len(left) != len(right):
            return False
        stack.extend(zip(reversed(left), reversed(right), strict=False))
    return True


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError, with both texts, unless the two are structurally equal.

    Args:
        lhs, rhs: Modules or expressions.
        map_free_vars: Accepted; free variables are always matched by their place.
    """
    del map_free_vars
    if not structural_equal(lhs, rhs):
        raise ValueError(f"not structurally equal:\n{lhs}\nand\n{rhs}")


def _same_pattern(a: adt.Pattern, b: adt.Pattern, stack: list[tuple[Expr, Expr]]) -> bool:
    """Compare patterns; their variables go on the stack."""
    if type(a) is not type(b):
        return False
    if isinstance(a, adt.PatternVar) and isinstance(b, adt.PatternVar):
        stack.append((a.var, b.var))
    if (
        isinstance(a, adt.PatternConstructor)
        and isinstance(b, adt.PatternConstructor)
        and not _same_node(a.constructor, b.constructor)
    ):
        return False
    if isinstance(a, (adt.PatternConstructor, adt.PatternTuple)):
        assert isinstance(b, (adt.PatternConstructor, adt.PatternTuple))
        if len(a.patterns) != len(b.patterns):
            return False
        pairs = zip(a.patterns, b.patterns, strict=True)
        return all(_same_pattern(x, y, stack) for x, y in pairs)
    return True


def _is_leaf(node: Expr) -> bool:
    """Check for nodes whose sharing has no meaning."""
    return isinstance(node, (ast.Op, ast.GlobalVar, ast.Constant, adt.Constructor))


def _is_unit(node: Expr) -> bool:
    """Check for the empty tuple, which is one value however often it is written."""
    return isinstance(node, ast.Tuple) and not node.fields


def _same_node(a: Expr, b: Expr) -> bool:
    """Compare what two nodes contain besides other expressions."""
    if isinstance(a, Var) and isinstance(b, Var):
        return _type(a) == _type(b)
    if isinstance(a, (ast.Op, ast.GlobalVar)):
        return bool(a.__class__ is b.__class__) and _name(a) == _name(b)
    if isinstance(a, ast.Constant) and isinstance(b, ast.Constant):
        return a.value.dtype == b.value.dtype and _same_numbers(a.value, b.value)
    if isinstance(a, ast.Call) and isinstance(b, ast.Call):
        return same_attrs(a.attrs, b.attrs)
    if isinstance(a, adt.Constructor) and isinstance(b, adt.Constructor):
        return (a.name_hint, a.belong_to, a.inputs) == (b.name_hint, b.belong_to, b.inputs)
    if isinstance(a, adt.Match) and isinstance(b, adt.Match):
        return a.complete == b.complete and len(a.clauses) == len(b.clauses)
    if isinstance(a, ast.TupleGetItem) and isinstance(b, ast.TupleGetItem):
        return a.index == b.index
    if isinstance(a, Function) and isinstance(b, Function):
        return same_attrs(a.attrs, b.attrs) and len(a.type_params) == len(b.type_params)
    return True


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _name(node: Expr) -> str:
    return node.name if isinstance(node, ast.Op) else node.name_hint  # type: ignore[attr-defined]


def _type(var: Var) -> Type | None:
    declared = var.type_annotation
    return (
        var.checked_type_ if declared is None or isinstance(declared, IncompleteType) else declared
    )


def same_attrs(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> bool:
    """Compare attributes; expressions among the values compare structurally."""
    if a is None or b is None:
        return (not a) and (not b)
    if getattr(a, "type_key", None) != getattr(b, "type_key", None) or set(a) != set(b):
        return False
    return all(_same_value(a[k], b[k]) for k in a)


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, Expr) and isinstance(b, Expr):
        return structural_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) < _CLOSE
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)

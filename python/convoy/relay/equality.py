"""Structural equality of modules, expressions and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.module import IRModule
from convoy.relay.types import IncompleteType, Type, TypeVar, replace_types
from convoy.relay.visit import bound_in, children

# Attributes that went through float32 equal themselves, as in TVM.
_CLOSE = 1e-9


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Compare two modules, expressions or types up to the names of local variables.

    Sharing counts: a value computed once differs from the same value computed twice. Spans and
    inferred types do not count.

    Args:
        lhs, rhs: Modules, expressions, types or attributes.
        map_free_vars: Whether variables that neither side declares are matched by their place;
            else they must be the same.
    """
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        if lhs.type_definitions.keys() != rhs.type_definitions.keys():
            return False
        return set(lhs) == set(rhs) and all(
            structural_equal(lhs[n], rhs[n], map_free_vars) for n in lhs
        )
    if isinstance(lhs, Expr) and isinstance(rhs, Expr):
        return _Comparison(map_free_vars).equal(lhs, rhs)
    return bool(lhs == rhs)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError, with both texts, unless the two are structurally equal.

    Arguments are those of `structural_equal`.
    """
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"not structurally equal:\n{lhs}\nand\n{rhs}")


class _Comparison:
    """One comparison of two expressions, and what of the two corresponds so far."""

    def __init__(self, map_free_vars: bool) -> None:
        self._map_free_vars = map_free_vars
        self._forward: dict[int, Expr] = {}
        self._backward: dict[int, Expr] = {}
        self._types: dict[TypeVar, Type] = {}

    def equal(self, lhs: Expr, rhs: Expr) -> bool:
        stack = [(lhs, rhs)]
        while stack:
            a, b = stack.pop()
            if _is_unit(a) and _is_unit(b):
                continue
            if id(a) in self._forward or id(b) in self._backward:
                known = self._forward.get(id(a)) is b and self._backward.get(id(b)) is a
                if known or (_is_leaf(a) and _is_leaf(b) and _same_node(a, b)):
                    continue
                return False
            if isinstance(a, Var) and isinstance(b, Var):
                if not (a is b or (self._map_free_vars and self._same_type(a, b))):
                    return False
            elif type(a) is not type(b) or not self._bind(a, b) or not _same_node(a, b):
                return False
            self._pair(a, b)
            left, right = children(a), children(b)
            if len(left) != len(right):
                return False
            stack.extend(zip(reversed(left), reversed(right), strict=False))
        return True

    def _pair(self, a: Expr, b: Expr) -> None:
        self._forward[id(a)], self._backward[id(b)] = b, a

    def _bind(self, a: Expr, b: Expr) -> bool:
        """Pair the variables that two nodes declare; False where the declarations differ."""
        if isinstance(a, adt.Match) and isinstance(b, adt.Match):
            pairs = zip(a.clauses, b.clauses, strict=False)
            if not all(_same_pattern(x.lhs, y.lhs) for x, y in pairs):
                return False
        if isinstance(a, Function) and isinstance(b, Function):
            if len(a.type_params) != len(b.type_params):
                return False
            self._types.update(zip(a.type_params, b.type_params, strict=True))  # type: ignore[arg-type]
        left, right = bound_in(a), bound_in(b)
        if len(left) != len(right):
            return False
        for x, y in zip(left, right, strict=True):
            if not self._same_type(x, y):
                return False
            self._pair(x, y)
        return True

    def _same_type(self, a: Var, b: Var) -> bool:
        left, right = _type(a), _type(b)
        if self._types and left is not None:
            left = replace_types(left, self._types)
        return left == right


def _same_pattern(a: adt.Pattern, b: adt.Pattern) -> bool:
    """Compare patterns up to their variables."""
    if type(a) is not type(b):
        return False
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
        return all(map(_same_pattern, a.patterns, b.patterns))
    return True


def _is_leaf(node: Expr) -> bool:
    """Check for nodes whose sharing has no meaning."""
    return isinstance(node, (ast.Op, ast.GlobalVar, ast.Constant, adt.Constructor))


def _is_unit(node: Expr) -> bool:
    """Check for the empty tuple, which is one value however often it is written."""
    return isinstance(node, ast.Tuple) and not node.fields


def _same_node(a: Expr, b: Expr) -> bool:
    """Compare what two nodes contain besides other expressions."""
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
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return same_attrs(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) < _CLOSE
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)

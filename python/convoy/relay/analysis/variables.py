"""Variables and type variables of expressions."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.module import IRModule
from convoy.relay.types import FuncType, TensorType, Type, TypeVar, type_parts
from convoy.relay.visit import children, post_order


def all_vars(expr: Expr) -> list[Var]:
    """Return all variables of an expression, declared and used, in order of first use."""
    found: dict[Var, None] = {}
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            found[node] = None
        elif node not in seen:
            seen.add(node)
            stack.extend(reversed(_with_patterns(node)))
    return list(found)


def _with_patterns(node: Expr) -> list[Expr]:
    """Return the children of a node; those of a match with the variables of its patterns."""
    if not isinstance(node, adt.Match):
        return list(children(node))
    clauses = ([*adt.pattern_vars(c.lhs), c.rhs] for c in node.clauses)
    return [node.data, *(part for clause in clauses for part in clause)]


def all_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return all type variables in the types of an expression, or in a type."""
    return _unique(v for t in _types(expr) for v in _walk(t) if isinstance(v, TypeVar))


def bound_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type parameters of the functions in an expression, or of those in a type."""
    return _unique(_declared(expr))


def free_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type variables that no function declares."""
    bound = set(_declared(expr))
    return [v for v in all_type_vars(expr) if v not in bound]


def all_dtypes(expr: Expr) -> set[str]:
    """Return the dtypes of all tensors in an expression whose types are inferred."""
    found: set[str] = set()
    for node in post_order(expr):
        for part in _walk(node.checked_type_) if node.checked_type_ is not None else ():
            if isinstance(part, TensorType):
                found.add(part.dtype)
    return found


def _unique(found: Iterator[TypeVar]) -> list[TypeVar]:
    return list(dict.fromkeys(found))


def _types(expr: Expr | Type) -> Iterator[Type]:
    """Yield the types that are written in an expression."""
    if isinstance(expr, Type):
        yield expr
        return
    for node in post_order(expr):
        if isinstance(node, Var) and node.type_annotation is not None:
            yield node.type_annotation
        elif isinstance(node, Function):
            yield from node.type_params
            if node.ret_type is not None:
                yield node.ret_type
        elif isinstance(node, ast.Call):
            yield from node.type_args


def _declared(expr: Expr | Type) -> Iterator[TypeVar]:
    if isinstance(expr, Expr):
        for node in post_order(expr):
            if isinstance(node, Function):
                yield from (t for t in node.type_params if isinstance(t, TypeVar))
    for type_ in _types(expr):
        for part in _walk(type_):
            if isinstance(part, FuncType):
                yield from part.type_params


def _walk(type_: Type) -> Iterator[Type]:
    """Yield a type and all types inside."""
    stack = [type_]
    while stack:
        found = stack.pop()
        yield found
        params = found.type_params if isinstance(found, FuncType) else ()
        stack += [*reversed(type_parts(found)), *reversed(params)]

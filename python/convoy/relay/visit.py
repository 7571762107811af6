"""Walking, comparing and rebuilding expressions, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.module import IRModule
from convoy.relay.types import IncompleteType, Type


def children(expr: Expr) -> Sequence[Expr]:
    """The expressions directly inside, in evaluation order; a function's parameters first."""
    if isinstance(expr, ast.Call):
        return (expr.op, *expr.args)
    if isinstance(expr, ast.Tuple):
        return expr.fields
    if isinstance(expr, ast.TupleGetItem):
        return (expr.tuple_value,)
    if isinstance(expr, ast.Let):
        return (expr.var, expr.value, expr.body)
    if isinstance(expr, ast.If):
        return (expr.cond, expr.true_branch, expr.false_branch)
    if isinstance(expr, Function):
        return (*expr.params, expr.body)
    return ()


def post_order(expr: Expr) -> Iterator[Expr]:
    """Every expression once, those inside before those around them."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], None]) -> None:
    """Call `fvisit` on every expression once, those inside first."""
    for node in post_order(expr):
        fvisit(node)


def bound_vars(expr: Expr) -> list[Var]:
    """Variables that a function or a let inside `expr` declares."""
    found: dict[Var, None] = {}
    for node in post_order(expr):
        if isinstance(node, Function):
            found.update(dict.fromkeys(node.params))
        elif isinstance(node, ast.Let):
            found[node.var] = None
    return list(found)


def free_vars(expr: Expr) -> list[Var]:
    """Variables that `expr` uses and does not declare, in order of first use."""
    bound = set(bound_vars(expr))
    return [n for n in post_order(expr) if isinstance(n, Var) and n not in bound]


def rewrite(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with parts replaced, from the inside out; sharing is kept.

    Arguments:
        replace: gets each node after its parts were rebuilt; None keeps it.
    """
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        new = rebuild(node, memo)
        swapped = replace(new)
        memo[id(node)] = new if swapped is None else swapped
    return memo[id(expr)]


def rebuild(node: Expr, memo: Mapping[int, Expr]) -> Expr:
    """`node` with its parts as in `memo`; `node` itself where none changed."""
    old = children(node)
    new = tuple(memo[id(c)] for c in old)
    if all(a is b for a, b in zip(old, new, strict=False)):
        return node
    if isinstance(node, ast.Call):
        return ast.Call(new[0], new[1:], node.attrs, node.type_args, span=node.span)
    if isinstance(node, ast.Tuple):
        return ast.Tuple(new, span=node.span)
    if isinstance(node, ast.TupleGetItem):
        return ast.TupleGetItem(new[0], node.index, span=node.span)
    if isinstance(node, ast.Let):
        return ast.Let(new[0], new[1], new[2], span=node.span)  # type: ignore[arg-type]
    if isinstance(node, ast.If):
        return ast.If(*new, span=node.span)
    assert isinstance(node, Function)
    return Function(
        new[:-1],  # type: ignore[arg-type]
        new[-1],
        node.ret_type,
        node.type_params,
        node.attrs,
        span=node.span,
    )


def bind(expr: Expr, binds: Mapping[Var, Expr]) -> Expr:
    """Replace variables; a function loses the parameters that are replaced."""

    def replace(node: Expr) -> Expr | None:
        return binds.get(node) if isinstance(node, Var) else None

    if not isinstance(expr, Function):
        return rewrite(expr, replace)
    body = rewrite(expr.body, replace)
    params = [p for p in expr.params if p not in binds]
    return Function(params, body, expr.ret_type, expr.type_params, expr.attrs, span=expr.span)


def structural_equal(lhs: Any, rhs: Any) -> bool:
    """Whether two modules or expressions are the same up to names of local variables.

    Sharing counts: a value computed once is not equal to the same value computed twice.
    Spans and inferred types do not count.
    """
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        return set(lhs) == set(rhs) and all(structural_equal(lhs[n], rhs[n]) for n in lhs)
    if not (isinstance(lhs, Expr) and isinstance(rhs, Expr)):
        return bool(lhs == rhs)
    forward: dict[int, Expr] = {}
    backward: dict[int, Expr] = {}
    stack: list[tuple[Expr, Expr]] = [(lhs, rhs)]
    while stack:
        a, b = stack.pop()
        if id(a) in forward or id(b) in backward:
            if forward.get(id(a)) is not b or backward.get(id(b)) is not a:
                if _is_leaf(a) and _is_leaf(b) and _same_node(a, b):
                    continue
                return False
            continue
        if type(a) is not type(b) or not _same_node(a, b):
            return False
        forward[id(a)], backward[id(b)] = b, a
        left, right = children(a), children(b)
        if len(left) != len(right):
            return False
        stack.extend(zip(reversed(left), reversed(right), strict=False))
    return True


def assert_structural_equal(lhs: Any, rhs: Any) -> None:
    """Raise ValueError, with both texts, unless the two are structurally equal."""
    if not structural_equal(lhs, rhs):
        raise ValueError(f"not structurally equal:\n{lhs}\nand\n{rhs}")


def _is_leaf(node: Expr) -> bool:
    """Nodes of which sharing means nothing."""
    return isinstance(node, (ast.Op, ast.GlobalVar, ast.Constant))


def _same_node(a: Expr, b: Expr) -> bool:
    """Equality of what the nodes hold besides other expressions."""
    if isinstance(a, Var) and isinstance(b, Var):
        return _type(a) == _type(b)
    if isinstance(a, (ast.Op, ast.GlobalVar)):
        return bool(a.__class__ is b.__class__) and _name(a) == _name(b)
    if isinstance(a, ast.Constant) and isinstance(b, ast.Constant):
        return a.value.dtype == b.value.dtype and _same_numbers(a.value, b.value)
    if isinstance(a, ast.Call) and isinstance(b, ast.Call):
        return same_attrs(a.attrs, b.attrs)
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
    """Equality of attributes; expressions among the values compare structurally."""
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
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)

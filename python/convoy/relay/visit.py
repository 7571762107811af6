"""Walking and rebuilding expressions, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var


def children(expr: Expr) -> Sequence[Expr]:
    """Return the expressions directly inside, in evaluation order, parameters first."""
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
    if isinstance(expr, adt.Match):
        return (expr.data, *(clause.rhs for clause in expr.clauses))
    if isinstance(expr, adt.RefCreate):
        return (expr.value,)
    if isinstance(expr, adt.RefRead):
        return (expr.ref,)
    if isinstance(expr, adt.RefWrite):
        return (expr.ref, expr.value)
    return ()


def post_order(
    expr: Expr,
    enter: Callable[[Expr], bool] = lambda node: True,
    parts: Callable[[Expr], Sequence[Expr]] = children,
) -> Iterator[Expr]:
    """Yield every expression once, inner ones first.

    Args:
        expr: The outermost expression.
        enter: Decides whether to go inside one.
        parts: Returns what is to come before one.
    """
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if enter(node):
                stack.extend((child, False) for child in reversed(parts(node)))


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], None]) -> None:
    """Call `fvisit` on every expression once, inner ones first."""
    for node in post_order(expr):
        fvisit(node)


def bound_in(node: Expr) -> Sequence[Var]:
    """Return the variables that a node itself declares."""
    if isinstance(node, Function):
        return node.params
    if isinstance(node, adt.Match):
        return [var for clause in node.clauses for var in adt.pattern_vars(clause.lhs)]
    return (node.var,) if isinstance(node, ast.Let) else ()


def bound_vars(expr: Expr) -> list[Var]:
    """Return the variables that functions and lets inside `expr` declare."""
    found: dict[Var, None] = {}
    outer_first = reversed(list(post_order(expr)))
    for node in outer_first:
        found.update(dict.fromkeys(bound_in(node)))
    return list(found)


def free_vars(expr: Expr) -> list[Var]:
    """Return the variables that `expr` uses and does not declare, in order of first use."""
    bound = set(bound_vars(expr))
    return [v for v in post_order(expr) if isinstance(v, Var) and v not in bound]


def rewrite(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Replace parts of an expression, from the inside out; sharing is kept.

    Args:
        expr: The expression.
        replace: Gets each node after its parts were rebuilt; returns None to keep it.
    """
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        new = rebuild(node, memo)
        replaced = replace(new)
        memo[id(node)] = new if replaced is None else replaced
    return memo[id(expr)]


def rebuild(node: Expr, memo: Mapping[int, Expr]) -> Expr:
    """Return `node` with the parts that `memo` has; `node` itself where none changed."""
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
        return ast.If(new[0], new[1], new[2], span=node.span)
    if isinstance(node, adt.Match):
        clauses = [adt.Clause(c.lhs, e) for c, e in zip(node.clauses, new[1:], strict=True)]
        return adt.Match(new[0], clauses, node.complete, span=node.span)
    if isinstance(node, (adt.RefCreate, adt.RefRead, adt.RefWrite)):
        return type(node)(*new, span=node.span)  # type: ignore[misc, arg-type]
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

"""Whether an expression is well formed, constant, or in basic block normal form."""

from __future__ import annotations

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.visit import bound_in, children, post_order


def well_formed(expr: Expr) -> bool:
    """Check that each variable is declared once, and used only where it is declared."""
    bound: set[Var] = set()
    for node in post_order(expr):
        for var in bound_in(node):
            if var in bound:
                return False
            bound.add(var)
    return not bound & _free(expr)


def _free(expr: Expr) -> set[Var]:
    """Return the variables that are free, scope by scope."""
    free: dict[int, frozenset[Var]] = {}
    for node in post_order(expr):
        if isinstance(node, Var):
            free[id(node)] = frozenset([node])
            continue
        found: frozenset[Var] = frozenset()
        for child in children(node):
            inner = free[id(child)]
            found = inner if not found else found if inner <= found else found | inner
        free[id(node)] = found - frozenset(bound_in(node))
    return set(free[id(expr)])


def check_constant(expr: Expr) -> bool:
    """Check for a constant, or a tuple of constants."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Tuple):
            stack.extend(node.fields)
        elif not isinstance(node, ast.Constant):
            return False
    return True


def check_basic_block_normal_form(expr: Expr) -> bool:
    """Check that each value is computed in the scope that encloses all of its uses.

    Raises:
        RelayTypeError: A value that is first used in a branch or a function, and again outside.
    """
    home: dict[int, int] = {}
    parent: dict[int, int] = {}
    depth: dict[int, int] = {0: 0}
    stack: list[tuple[Expr, int]] = [(expr, 0)]
    scopes = 1
    while stack:
        node, scope = stack.pop()
        if isinstance(node, (ast.Op, ast.GlobalVar, ast.Constant)):
            continue
        if id(node) in home:
            at = home[id(node)]
            if scope != at and not _encloses(at, scope, parent, depth):
                raise RelayTypeError(
                    f"a {type(node).__name__} that a branch or function uses and its outside too",
                    "basic block normal form",
                    "Bind it by a let, or run relay.transform.ToBasicBlockNormalForm()",
                )
            continue
        home[id(node)] = scope
        inner = _scoped(node)
        for child in reversed(children(node)):
            at = scope
            if child in inner:
                at, scopes = scopes, scopes + 1
                parent[at], depth[at] = scope, depth[scope] + 1
            stack.append((child, at))
    return True


def _scoped(node: Expr) -> tuple[Expr, ...]:
    """Return the children that are scopes of their own."""
    if isinstance(node, ast.If):
        return (node.true_branch, node.false_branch)
    return (node.body,) if isinstance(node, Function) else ()


def _encloses(outer: int, inner: int, parent: dict[int, int], depth: dict[int, int]) -> bool:
    while depth[inner] > depth[outer]:
        inner = parent[inner]
    return inner == outer

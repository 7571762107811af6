"""Matching of a dominator: fuzzy paths from one parent to a child."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.matching import Matching, Pattern
from convoy.relay.trampoline import Step
from convoy.relay.visit import children


def match_dominator(
    matching: Matching, parent: Pattern, path: Pattern, child: Pattern, expr: Expr
) -> Step:
    """Match the child, then every path from it back to the one parent."""
    if not (yield matching.visit(child, expr)):
        return False
    arrives = yield _all_paths(matching, parent, path, expr)
    matching.remember = True
    return arrives and (yield _dominated(matching, parent, expr))


def _inputs(expr: Expr) -> Sequence[Expr]:
    """Return the computed inputs; variables and constants are on no path."""
    inputs = expr.args if isinstance(expr, ast.Call) else children(expr)
    return [i for i in inputs if not isinstance(i, (ast.Var, ast.Constant))]


def _all_paths(matching: Matching, parent: Pattern, path: Pattern, expr: Expr) -> Step:
    """Check that each computed input is the parent, or on a path that comes from it."""
    seen: set[Expr] = set()
    if not _inputs(expr):
        return False
    stack = [iter(_inputs(expr))]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        if node in seen:
            continue
        matching.remember = True  # there is one parent
        if (yield matching.visit(parent, node)):
            continue
        matching.remember = False  # a path has many nodes
        if not (yield matching.visit(path, node)) or not _inputs(node):
            return False
        seen.add(node)
        stack.append(iter(_inputs(node)))
    return True


def _dominated(matching: Matching, parent: Pattern, expr: Expr) -> Step:
    """Check that the parent is used on the way to `expr` only."""
    stack, seen = [expr], set()
    while stack:
        for node in matching.graph.dominated_by(stack.pop()):
            if node in seen:
                continue
            seen.add(node)
            if (yield matching.visit(parent, node)):
                return True
            stack.append(node)
    return False

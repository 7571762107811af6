"""The order in which the nodes of an expression are valued, inner ones first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import ConvoyError
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.convert.scope import Scope
from convoy.relay.diagnostics import place
from convoy.relay.trampoline import Step


def in_order(root: Expr, scope: Scope, value_of: Callable[[Expr, Scope], Any]) -> Step:
    """Value an expression, in steps of a trampoline: nesting does not recurse in Python.

    Args:
        root: The expression.
        scope: Where the values of its nodes are kept; those that are there are not made again.
        value_of: Makes the value of a node whose operands have theirs, or the steps to it.

    Returns:
        The steps to the value of the expression.
    """
    stack: list[Expr] = [root]
    while stack:
        node = stack[-1]
        if scope.find(node) is not None:
            stack.pop()
            continue
        waiting = [n for n in _operands(node) if scope.find(n) is None]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        if isinstance(node, ast.Let) and scope.find(node.body) is None:
            scope.values[node.var] = scope.need(node.value)
            stack.append(node.body)
            continue
        stack.pop()
        try:
            value = value_of(node, scope)
            scope.values[node] = (yield value) if hasattr(value, "send") else value
        except ConvoyError as error:
            raise place(error, node.span) from None
    return scope.need(root)


def _operands(node: Expr) -> Sequence[Expr]:
    """Return what must be valued before a node."""
    if isinstance(node, ast.Call):
        return node.args if isinstance(node.op, ast.Op) else (*node.args, node.op)
    if isinstance(node, ast.Tuple):
        return node.fields
    if isinstance(node, ast.TupleGetItem):
        return (node.tuple_value,)
    if isinstance(node, ast.Let):
        return (node.value,)
    if isinstance(node, ast.If):
        return (node.cond,)
    return ()

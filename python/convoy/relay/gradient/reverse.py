"""Reverse mode: from the gradient of a result to those of what it was computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Expr, Var
from convoy.relay.gradient.common import call, is_float
from convoy.relay.gradient.registry import rule_of
from convoy.relay.types import TupleType, Type
from convoy.relay.visit import children

# The gradient of a tensor is an expression; of a tuple, a list with one for each field, or an
# expression of a tuple; None where nothing flows.
Adjoint = Any


def backward(root: Expr, seed: Adjoint, leaves: set[Any]) -> dict[Expr, Adjoint]:
    """Return the gradients of a result by the leaves that it depends on.

    Args:
        root: The result: operators, tuples and ifs, with inferred types.
        seed: The gradient of the result.
        leaves: Nodes to differentiate by; what they are computed from does not count.

    Raises:
        UnsupportedOp: An operator on the way without a gradient.
    """
    return _Reverse(root, leaves).run(seed)


def zeros(expr: Expr, type_: Type) -> Expr:
    """Return zeros of the type of an expression."""
    if isinstance(type_, TupleType):
        return ast.Tuple([zeros(ast.TupleGetItem(expr, i), f) for i, f in enumerate(type_.fields)])
    return call("zeros_like", expr)


def materialize(adjoint: Adjoint, expr: Expr, type_: Type) -> Expr:
    """Return a gradient as an expression of the type of `expr`."""
    if adjoint is None:
        return zeros(expr, type_)
    if isinstance(adjoint, list):
        assert isinstance(type_, TupleType)
        fields = [
            materialize(a, ast.TupleGetItem(expr, i), f)
            for i, (a, f) in enumerate(zip(adjoint, type_.fields, strict=True))
        ]
        return ast.Tuple(fields)
    return adjoint


def _fields(adjoint: Adjoint, number: int) -> list[Adjoint]:
    if adjoint is None:
        return [None] * number
    if isinstance(adjoint, ast.Tuple):
        return list(adjoint.fields)
    if isinstance(adjoint, Expr):
        return [ast.TupleGetItem(adjoint, i) for i in range(number)]
    return list(adjoint)


def _sum(a: Adjoint, b: Adjoint, type_: Type) -> Adjoint:
    """Add gradients."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(type_, TupleType):
        left, right = (_fields(x, len(type_.fields)) for x in (a, b))
        return [_sum(*pair) for pair in zip(left, right, type_.fields, strict=True)]
    return call("add", a, b)


class _Reverse:
    """The backward walk of one expression."""

    def __init__(self, root: Expr, leaves: set[Any]) -> None:
        self.root, self.leaves = root, leaves
        outside = _outside(root, leaves)
        self.captured: dict[Expr, list[Expr]] = {
            node: _captures(node, outside | leaves) for node in outside if isinstance(node, ast.If)
        }
        self.order = self._ordered()
        self.active = self._active()
        self.adjoints: dict[Expr, Adjoint] = {}

    def inputs(self, node: Expr) -> Sequence[Expr]:
        """Return what a node is computed from; the branches of an if by what they capture."""
        if node in self.leaves:
            return ()
        if isinstance(node, ast.Call):
            return node.args
        if isinstance(node, ast.If):
            return (node.cond, *self.captured.get(node, ()))
        return children(node)

    def _ordered(self) -> list[Expr]:
        order: dict[Expr, None] = {}
        seen: set[Expr] = set()
        stack = [(self.root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order[node] = None
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                if isinstance(node, ast.If) and node not in self.captured:
                    self.captured[node] = _captures(node, self.leaves)
                stack.extend((i, False) for i in reversed(self.inputs(node)))
        return list(order)

    def _active(self) -> set[Expr]:
        """Return the nodes with numbers that depend on leaves."""
        active: set[Expr] = set()
        for node in self.order:
            depends = node in self.leaves or any(i in active for i in self.inputs(node))
            if depends and is_float(node.checked_type):
                active.add(node)
        return active

    def run(self, seed: Adjoint) -> dict[Expr, Adjoint]:
        """Walk back from the result."""
        self.send(self.root, seed)
        for node in reversed(self.order):
            adjoint = self.adjoints.get(node)
            if adjoint is not None and node not in self.leaves:
                self._back(node, adjoint)
        return {node: a for node, a in self.adjoints.items() if node in self.leaves}

    def send(self, node: Expr, adjoint: Adjoint) -> None:
        """Add to the gradient of a node."""
        if adjoint is not None and node in self.active:
            self.adjoints[node] = _sum(self.adjoints.get(node), adjoint, node.checked_type)

    def _back(self, node: Expr, adjoint: Adjoint) -> None:
        if isinstance(node, ast.Tuple):
            for field, part in zip(node.fields, _fields(adjoint, len(node.fields)), strict=True):
                self.send(field, part)
        elif isinstance(node, ast.TupleGetItem):
            whole = node.tuple_value.checked_type
            assert isinstance(whole, TupleType)
            parts: list[Adjoint] = [None] * len(whole.fields)
            parts[node.index] = adjoint
            self.send(node.tuple_value, parts)
        elif isinstance(node, ast.If):
            self._if(node, adjoint)
        elif isinstance(node, ast.Call):
            assert isinstance(node.op, ast.Op)
            grad = materialize(adjoint, node, node.checked_type)
            found = rule_of(node.op.name)(node, grad)
            for arg, part in zip(node.args, found, strict=True):
                self.send(arg, part)

    def _if(self, node: ast.If, adjoint: Adjoint) -> None:
        """The gradient is an `if` too, with the gradients of what either branch captures."""
        wanted = [n for n in self.captured[node] if n in self.active]
        if not wanted:
            return
        seed = materialize(adjoint, node, node.checked_type)
        branches = []
        for body in (node.true_branch, node.false_branch):
            found = backward(body, seed, set(self.captured[node]))
            fields = [materialize(found.get(n), n, n.checked_type) for n in wanted]
            branches.append(ast.Tuple(fields))
        both = ast.If(node.cond, branches[0], branches[1])
        for index, captured in enumerate(wanted):
            self.send(captured, ast.TupleGetItem(both, index))


def _outside(root: Expr, leaves: set[Any]) -> set[Expr]:
    """Return the nodes that are computed in any case: not only in a branch."""
    found: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        if node in leaves:
            continue
        stack.extend((node.cond,) if isinstance(node, ast.If) else children(node))
    return found


def _captures(node: ast.If, outside: set[Any]) -> list[Expr]:
    """Return the outer nodes and variables that the branches of an if use."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack: list[Expr] = [node.false_branch, node.true_branch]
    while stack:
        inner = stack.pop()
        if inner in seen or isinstance(inner, (ast.Op, ast.Constant)):
            continue
        seen.add(inner)
        if isinstance(inner, Var) or inner in outside:
            found[inner] = None
        else:
            stack.extend(reversed(children(inner)))
    return list(found)

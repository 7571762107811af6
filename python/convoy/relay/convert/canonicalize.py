"""Expansion of operators that stand for several others, before conversion to Relax."""

from __future__ import annotations

from convoy.errors import ConvoyError
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.diagnostics import place
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.registry import Expansion
from convoy.relay.visit import post_order, rebuild


def has_expansions(mod: IRModule) -> bool:
    """Check whether a module calls an operator that is expanded."""
    return any(
        isinstance(node, ast.Op) and _expansion(node) is not None
        for name in mod
        for node in post_order(mod[name])
    )


def canonicalize(mod: IRModule, only: str = "") -> IRModule:
    """Expand operators, and infer types again.

    Args:
        mod: A module with inferred types.
        only: Expand operators whose names begin so.

    Raises:
        UnsupportedOp: A scale, a zero point or a shape that is computed.
    """
    result = mod.shallow_copy()
    for var, function in mod.items():
        result[var] = _expanded(function, only)
    return infer_module(result)


def _expanded(expr: Expr, only: str) -> Expr:
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        new = rebuild(node, memo)
        expand = _expansion(node.op) if isinstance(node, ast.Call) else None
        if expand is not None and node.op.name.startswith(only):  # type: ignore[attr-defined]
            assert isinstance(node, ast.Call) and isinstance(new, ast.Call)
            try:
                new = expand(node, new.args)
            except ConvoyError as error:
                raise place(error, node.span) from None
        memo[id(node)] = new
    return memo[id(expr)]


def _expansion(op: Expr) -> Expansion | None:
    found = OPERATORS.get(op.name) if isinstance(op, ast.Op) else None
    return None if found is None else found.expansion

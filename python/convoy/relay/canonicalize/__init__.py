"""Operators that stand for several plain ones, written out before conversion to Relax.

`qnn` has the quantised operators, `dynamic` those that take a shape as an argument. Every
expansion is registered by `@expands("qnn.dense")` and gives a Relay expression of operators that
have converters.
"""

from __future__ import annotations

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.canonicalize import dynamic, qnn  # noqa: F401  (registers the expansions)
from convoy.relay.canonicalize.registry import EXPANSIONS
from convoy.relay.diagnostics import place
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.visit import post_order, rebuild

from ...errors import ConvoyError

__all__ = ["EXPANSIONS", "canonicalize", "has_expansions"]


def has_expansions(mod: IRModule) -> bool:
    """Whether a module calls an operator that stands for several."""
    return any(
        isinstance(node, ast.Op) and node.name in EXPANSIONS
        for name in mod
        for node in post_order(mod[name])
    )


def canonicalize(mod: IRModule) -> IRModule:
    """The module with such operators written out. Its types must be inferred.

    Raises:
        UnsupportedOp: a scale, a zero point or a shape that is computed.
    """
    result = mod.shallow_copy()
    for var, function in mod.items():
        result[var] = _expanded(function)  # type: ignore[assignment]
    return infer_module(result)


def _expanded(expr: Expr) -> Expr:
    memo: dict[int, Expr] = {}
    for node in post_order(expr):
        new = rebuild(node, memo)
        if isinstance(node, ast.Call) and isinstance(node.op, ast.Op):
            expand = EXPANSIONS.get(node.op.name)
            if expand is not None:
                assert isinstance(new, ast.Call)
                try:
                    new = expand(node, new.args)
                except ConvoyError as error:
                    raise place(error, node.span) from None
        memo[id(node)] = new
    return memo[id(expr)]

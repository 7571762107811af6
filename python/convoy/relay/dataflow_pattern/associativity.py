"""Products of quotients in patterns: a * (b / c) is (a * b) / c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from convoy.relay import ast
from convoy.relay.ast import Expr

if TYPE_CHECKING:
    from convoy.relay.dataflow_pattern.pattern import CallPattern


def associated(pattern: CallPattern, call: ast.Call) -> Iterator[CallPattern]:
    """Yield equal patterns that begin with the call's operator."""
    if _nests(call, "multiply", "divide"):  # b * (a / c) and a * (b / c) for (a * b) / c
        for product, divisor in _operands(pattern, "divide"):
            for a, b in _operands(product, "multiply"):
                yield product.op(b, pattern.op(a, divisor))
                yield product.op(a, pattern.op(b, divisor))
    elif _nests(call, "divide", "multiply"):  # (a * b) / c for (a / c) * b and for b * (a / c)
        for first, second in _operands(pattern, "multiply"):
            for quotient, b in ((first, second), (second, first)):
                for a, divisor in _operands(quotient, "divide"):
                    yield quotient.op(pattern.op(a, b), divisor)


def _operands(pattern: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Yield the two operands of a pattern of a certain operator's calls, nothing of others."""
    if getattr(pattern, "op_name", "") == name and pattern.args and len(pattern.args) == 2:
        yield pattern.args[0], pattern.args[1]


def _nests(call: ast.Call, name: str, inner: str) -> bool:
    """Check for a call of one operator with a call of another among its arguments."""
    return _is_call(call, name) and any(_is_call(arg, inner) for arg in call.args)


def _is_call(expr: Expr, name: str) -> bool:
    return isinstance(expr, ast.Call) and expr.op is ast.op(name)

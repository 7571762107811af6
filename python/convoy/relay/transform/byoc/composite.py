"""MergeComposite: functions of the parts of a network that match patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ast import Expr, Function
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import expr_pass


@register_pass
def MergeComposite(pattern_table: Sequence[tuple[Any, ...]]) -> Pass:
    """Replace matches by calls of functions with the attribute `Composite`.

    Args:
        pattern_table: Names and patterns, those of higher priority first; each may have a function
            that returns False for a typed match which is to stay as it is.
    """
    rows = [_row(row) for row in pattern_table]

    def run(function: Function, mod: IRModule) -> Expr:
        expr: Expr = function
        for name, pattern, check in rows:
            expr = infer_expr(pattern.partition(expr, {"Composite": name}, check), mod)
        return expr

    return expr_pass("MergeComposite", 0, run, with_module=True)


def _row(row: Sequence[Any]) -> tuple[str, Any, Callable[[Expr], bool]]:
    if not 2 <= len(row) <= 3 or not isinstance(row[0], str):
        raise InvalidOption(f"row {row!r} of a pattern table", "a name, a pattern and a check")
    name, pattern, *rest = row
    return name, pattern, rest[0] if rest else lambda expr: True

"""Types that patterns ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr, Op, Var
from convoy.relay.infer import infer_expr
from convoy.relay.types import Type


def type_of(expr: Expr) -> Type | None:
    """Return the type of an expression, inferred if need be; an operator has none,
    nor has a variable without annotation.

    Raises:
        RelayTypeError: A type that nothing determines, or that does not fit.
    """
    if isinstance(expr, Op):
        return None
    if isinstance(expr, Var):
        return expr.type_
    if expr.checked_type_ is None:
        infer_expr(expr)
    return expr.checked_type_


def same_shape(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Compare shapes; TVM's integers count as Python's."""
    return [getattr(d, "value", d) for d in found] == [getattr(d, "value", d) for d in wanted]

"""`relay.loops`: a loop as a function that calls itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.relay.ast import Call, Expr, Function, If, Let, Tuple, Var
from convoy.relay.types import TupleType


def while_loop(
    cond: Callable[..., Expr], loop_vars: Sequence[Expr], loop_bodies: Callable[..., Any]
) -> Let:
    """Make a loop.

    Args:
        cond: Takes the variables; returns the scalar bool to go on.
        loop_vars: The variables, or first values with inferred types.
        loop_bodies: Takes the variables; returns their next values.

    Returns:
        An expression of the loop's function: call it with the first values. Its result is the
        tuple of the last ones.
    """
    loop = Var("while_loop")
    fresh = [
        Var(getattr(v, "name_hint", f"arg{i}"), getattr(v, "type_annotation", v.checked_type_))
        for i, v in enumerate(loop_vars)
    ]
    following = loop_bodies(*fresh)
    if isinstance(following, Expr):
        following = [following]
    body = If(cond(*fresh), Call(loop, list(following)), Tuple(fresh))
    types = [v.type_annotation for v in fresh]
    known = all(t is not None for t in types)
    result = TupleType([t for t in types if t is not None]) if known else None
    return Let(loop, Function(fresh, body, result), loop)

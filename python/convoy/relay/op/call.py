"""Making calls from what users pass to the helpers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr, Tuple, TupleWrapper, op_call


def call(name: str, *args: Any, **attrs: Any) -> Call:
    """A call of an operator; arguments may be results of other helpers."""
    return op_call(name, [expr(a, name) for a in args], **attrs)


def expr(value: Any, where: str) -> Expr:
    """An argument as an expression.

    Raises:
        TypeError: a Python number or array, which `relay.const` makes an expression of.
    """
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if not isinstance(value, Expr):
        raise TypeError(f'{where}: convert "{value}" with `const` first')
    return value


def as_tuple(data: Any) -> Expr:
    """A list of expressions as a tuple expression; a tuple stays."""
    if isinstance(data, (list, tuple)):
        if not data:
            raise ValueError("relay.concatenate requires data to be non-empty.")
        return Tuple([expr(d, "a tuple") for d in data])
    return expr(data, "a tuple")


def sizes(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One number for all axes, or one for each.

    Raises:
        ValueError: another number of values.
    """
    if isinstance(value, int):
        return (value,) * count
    values = tuple(value)
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise ValueError(f"{count} values expected, got {list(values)}")
    return values


def padding(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Padding as it is stored: all values before, then all values after."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        return values * (2 * rank)
    if len(values) == rank:
        return values + values
    if len(values) == 2 * rank:
        return values
    raise ValueError(f"padding of 1, {rank} or {2 * rank} values expected, got {list(values)}")

"""Normalizing what users pass to builders: expressions, sizes, axes, padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Tuple, TupleWrapper, op_call

Size = Any  # an int for all axes, or a sequence of int
Sizes = Any  # a sequence of int, an int, or an expression that computes them
Axes = Any  # None, an int or a sequence of int


def make_call(name: str, *args: Any, **attrs: Any) -> Call:
    """Make a call of an operator.

    Args:
        name: The operator.
        *args: Expressions, or what a builder of several results returned.
        **attrs: Attributes; missing ones get the defaults of their C++ class.
    """
    return op_call(name, [expr(a, name) for a in args], **attrs)


def expr(value: Any, where: str) -> Expr:
    """Convert an argument to an expression.

    Raises:
        TypeError: A Python number or array; `relay.const` makes an expression of it.
    """
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if not isinstance(value, Expr):
        raise TypeError(f'{where}: convert "{value}" with `const` first')
    return value


def known(value: Any) -> Any:
    """Return the numbers of a constant expression, anything else as it is.

    Shapes, axes and scales may be given as numbers or as expressions; only those that are computed
    make a `dyn.*` operator.
    """
    return value.value.tolist() if isinstance(value, Constant) else value


def listed(value: Any) -> tuple[Any, ...]:
    """Convert one number or a sequence of them to a tuple."""
    if isinstance(value, (int, float, np.number)):
        return (value,)
    return tuple(known(v) for v in value)


def as_tuple(data: Any) -> Expr:
    """Convert several expressions to a tuple expression; a tuple expression stays as it is."""
    if isinstance(data, Expr) or not isinstance(data, Iterable):
        return expr(data, "a tuple")
    fields = [expr(d, "a tuple") for d in data]
    if not fields:
        raise ValueError("relay.concatenate requires data to be non-empty.")
    return Tuple(fields)


def axes_of(axis: Axes) -> tuple[int, ...] | None:
    """Convert one axis, several or None to the value of an attribute `axis`."""
    return (axis,) if isinstance(axis, int) else None if axis is None else tuple(axis)


def sizes(value: Size, count: int) -> tuple[int, ...]:
    """Expand a size to one value for each of `count` axes.

    Raises:
        ValueError: Another number of values.
    """
    if isinstance(value, int):
        return (value,) * count
    values = tuple(value)
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise ValueError(f"{count} values expected, got {list(values)}")
    return values


def both_sides(value: Size, rank: int) -> tuple[int, ...]:
    """Expand padding to `2 * rank` values: all before, then all after.

    Args:
        value: One value, one for each axis, or all `2 * rank`.
        rank: The number of spatial axes.

    Raises:
        ValueError: Another number of values.
    """
    values: Sequence[int] = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        return tuple(values) * (2 * rank)
    if len(values) == rank:
        return (*values, *values)
    if len(values) == 2 * rank:
        return tuple(values)
    raise ValueError(f"padding of 1, {rank} or {2 * rank} values expected, got {list(values)}")

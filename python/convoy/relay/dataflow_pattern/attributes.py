"""Attributes that patterns ask for: of operators, calls and functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.equality import structural_equal


def has_attributes(expr: Expr, wanted: Mapping[str, Any]) -> bool:
    """Check whether an operator, a call or a function has attributes of these values."""
    found: Mapping[str, Any]
    if isinstance(expr, ast.Op):
        found = {key: expr.get_attr(key) for key in wanted if expr.has_attr(key)}
    elif isinstance(expr, (ast.Call, ast.Function)):
        found = expr.attrs or {}
    else:
        return False
    return all(key in found and _same(value, found[key]) for key, value in wanted.items())


def _same(wanted: Any, found: Any) -> bool:
    """Compare values; numbers and strings of TVM count as those of Python."""
    wanted, found = _plain(wanted), _plain(found)
    if isinstance(wanted, tuple) and isinstance(found, tuple):
        return len(wanted) == len(found) and all(map(_same, wanted, found))
    if isinstance(wanted, Expr) or isinstance(found, Expr):
        return structural_equal(wanted, found)
    return bool(wanted == found)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    if isinstance(value, (str, Expr, int, float, tuple)) or value is None:
        return value
    if hasattr(value, "value"):  # IntImm, FloatImm, StringImm
        return value.value
    if isinstance(value, (list, np.ndarray)) or hasattr(value, "__getitem__"):
        return tuple(value)
    return value

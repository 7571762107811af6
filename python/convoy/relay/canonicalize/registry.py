"""The registry of expansions, and what they read of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, op_call
from convoy.relay.attrs import Attrs
from convoy.relay.types import TensorType

# Gets the call, with the types that inference found, and its arguments as they are now.
Expansion = Callable[[ast.Call, Sequence[Expr]], Expr]
EXPANSIONS: dict[str, Expansion] = {}


def expands(*names: str) -> Callable[[Expansion], Expansion]:
    """Register a function as the expansion of operators."""

    def register(function: Expansion) -> Expansion:
        for name in names:
            EXPANSIONS[name] = function
        return function

    return register


def name_of(call: ast.Call) -> str:
    assert isinstance(call.op, ast.Op)
    return call.op.name


def attrs_of(call: ast.Call) -> Attrs:
    return call.attrs if call.attrs is not None else Attrs(None, {})


def type_of(call: ast.Call, index: int) -> TensorType:
    """The type of a tensor argument."""
    found = call.args[index].checked_type
    assert isinstance(found, TensorType), "type inference has checked it"
    return found


def constant(call: ast.Call, value: Expr, what: str) -> np.ndarray:
    """The number, or numbers, of an argument.

    Raises:
        UnsupportedOp: an argument that is no constant.
    """
    if not isinstance(value, ast.Constant):
        raise UnsupportedOp(
            f"{name_of(call)} with {what} that is computed", "a constant", "Bind it as a parameter"
        )
    return value.value


def const(value: Any, dtype: str) -> ast.Constant:
    return ast.Constant(np.asarray(value).astype(dtype))


def plain(name: str, *args: Expr, **attrs: Any) -> Expr:
    """A call of an operator."""
    return op_call(name, args, **attrs)

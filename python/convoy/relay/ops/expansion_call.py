"""Reading a call that is expanded into other Relay operators, and building the new calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, op_call
from convoy.relay.attrs import Attrs
from convoy.relay.types import TensorType


def name_of(call: ast.Call) -> str:
    """Return the operator's name."""
    assert isinstance(call.op, ast.Op)
    return call.op.name


def attrs_of(call: ast.Call) -> Attrs:
    """Return the call's attributes, empty where it has none."""
    return call.attrs if call.attrs is not None else Attrs(None, {})


def type_of(call: ast.Call, index: int) -> TensorType:
    """Return the type of a tensor argument."""
    found = call.args[index].checked_type
    assert isinstance(found, TensorType), "type inference has checked it"
    return found


def constant(call: ast.Call, value: Expr, what: str) -> np.ndarray:
    """Return the value of an argument that must be a constant.

    Args:
        call: The call, for the error.
        value: The argument.
        what: The argument's meaning, for the error: "a shape".

    Raises:
        UnsupportedOp: The argument is computed.
    """
    if not isinstance(value, ast.Constant):
        raise UnsupportedOp(
            f"{name_of(call)} with {what} that is computed", "a constant", "Bind it as a parameter"
        )
    return value.value


def const(value: Any, dtype: str) -> ast.Constant:
    """Make a constant of a dtype."""
    return ast.Constant(np.asarray(value).astype(dtype))


def plain(name: str, *args: Expr, **attrs: Any) -> Expr:
    """Make a call of an operator that has a converter."""
    return op_call(name, args, **attrs)

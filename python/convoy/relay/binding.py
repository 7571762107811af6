"""Binding values to parameters of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay.ast import Constant, Expr, Function, Var
from convoy.relay.params import to_array
from convoy.relay.visit import bind


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """Replace parameters by constants.

    Args:
        func: The function.
        params: Values by name; unknown names are ignored.

    Raises:
        RelayTypeError: A name that two parameters have.
    """
    found: dict[Var, Expr] = {}
    seen: set[str] = set()
    for var in func.params:
        if var.name_hint not in params:
            continue
        if var.name_hint in seen:
            raise RelayTypeError(f"params['{var.name_hint}']", "one parameter of that name")
        seen.add(var.name_hint)
        value = params[var.name_hint]
        found[var] = Constant(to_array(value, f"params['{var.name_hint}']"))
    return bind(func, found) if found else func  # type: ignore[return-value]

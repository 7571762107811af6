"""`tvm.convert`: values as objects of TVM."""

from __future__ import annotations

from typing import Any

import tvm

from convoy.relay.ast import Expr
from convoy.relay.types import Type


def convert(value: Any, span: Any = None) -> Any:
    """Convert a value to an object of TVM; what has Relay in it stays as it is."""
    del span
    if isinstance(value, (Expr, Type)):
        return value
    if isinstance(value, (list, tuple)):
        converted = [convert(v) for v in value]
        if any(isinstance(v, (Expr, Type, list)) for v in converted):
            return converted
    return tvm.runtime.convert(value)

"""`tvm.te`: tensor expressions; their schedules are no longer part of TVM."""

from __future__ import annotations

from typing import Any

import tvm

from convoy.relay.removed import Removed
from convoy.relay.tvm018.modules import forward

_forward = forward("tvm.te")


def size_var(name: str = "size", dtype: str = "int32", span: Any = None) -> Any:
    """Make a variable for a size."""
    del span
    return tvm.te.var(name, dtype)


def __getattr__(name: str) -> Any:
    if name in ("create_schedule", "decl_tensor_intrin", "AXIS_SEPARATOR", "SpecializedCondition"):
        return Removed(f"te.{name}")
    return _forward(name)

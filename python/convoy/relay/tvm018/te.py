"""`tvm.te`: tensor expressions; their schedules are no longer part of TVM."""

from __future__ import annotations

from typing import Any

import tvm

from convoy.relay.tvm018.modules import forward


def size_var(name: str = "size", dtype: str = "int32", span: Any = None) -> Any:
    """Make a variable for a size."""
    del span
    return tvm.te.var(name, dtype)


__path__: list[str] = []  # `import tvm.te.hybrid` finds a stand-in

__getattr__ = forward("tvm.te")

"""Restrict a module to the kernels of one library and of TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.binding import bind_params_by_name
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule

#: Attribute of a module: the backends that `relay.build` may use.
BACKENDS = "convoy.backends"


def restricted(mod: IRModule, params: Mapping[str, Any] | None, library: str) -> IRModule:
    """Return a copy of a module that `relay.build` compiles for a library and TVM alone.

    Args:
        mod: The module.
        params: Values that become constants; unknown names are ignored.
        library: The name of the library's backend.
    """
    result = mod.shallow_copy()
    if params:
        result["main"] = bind_params_by_name(result["main"], params)
    result.attrs[BACKENDS] = (library, "tvm")
    return infer_module(result)

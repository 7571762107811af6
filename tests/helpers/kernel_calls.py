"""The kernels that a lowered module launches."""

from __future__ import annotations

import tvm

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function


def kernel_calls(mod: tvm.IRModule) -> list[str]:
    """Name the kernels that a fused module launches in one call, in order; external functions by
    their symbol."""
    _, func = main_function(mod)
    names = []
    for binding in bindings_of(func):
        call = binding.value
        if op_name(call) == "relax.call_tir":
            names.append(call.args[0].name_hint)
        elif op_name(call) == "relax.call_dps_packed":
            names.append(str(call.args[0].global_symbol))
    return names

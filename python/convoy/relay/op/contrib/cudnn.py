"""`partition_for_cudnn`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.binding import bind_params_by_name
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule


def partition_for_cudnn(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Restrict a module to kernels of cuDNN and of TVM.

    Args:
        mod: The module.
        params: Values that become constants; unknown names are ignored.
    """
    result = mod.shallow_copy()
    if params:
        result["main"] = bind_params_by_name(result["main"], params)
    result.attrs["convoy.backends"] = ("cudnn", "tvm")
    return infer_module(result)

"""`partition_for_cudnn`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.module import IRModule
from convoy.relay.restriction import restricted


def partition_for_cudnn(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Restrict a module to kernels of cuDNN and of TVM.

    Args:
        mod: The module.
        params: Values that become constants; unknown names are ignored.
    """
    return restricted(mod, params, "cudnn")

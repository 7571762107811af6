"""Load a single kernel as a callable: a built candidate in its own runtime module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.workload import Workload
from ..runtime.module import create_module
from .base import Backend, Binary

if TYPE_CHECKING:
    import tvm_ffi

_SYMBOL = "candidate"


def load_binary(binary: Binary, device: Device, **changes: object) -> tvm_ffi.Function:
    """Load a built candidate.

    Args:
        changes: Fields of the entry that get other values.

    Returns:
        A function of the tensors of :meth:`Workload.operand_shapes`, in their order.
    """
    entry = {**binary.entry, **changes, "symbol": _SYMBOL}
    return create_module([entry], binary.blobs, arch=device.arch)[_SYMBOL]


def load_candidate(
    backend: Backend, workload: Workload, candidate: Candidate, device: Device
) -> tvm_ffi.Function:
    """Build and load a candidate; raises what :meth:`Backend.build` raises."""
    return load_binary(backend.build(workload, candidate, device), device)

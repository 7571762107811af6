"""Schedules of the kernels that TVM generates itself, for NVIDIA GPUs."""

from __future__ import annotations

import tvm
from tvm.s_tir import dlight


def schedule_kernels(target: tvm.target.Target) -> tvm.transform.Pass:
    """A pass that binds every kernel to threads: convoy's rules first, then stock ones."""
    return dlight.ApplyDefaultSchedule(
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )

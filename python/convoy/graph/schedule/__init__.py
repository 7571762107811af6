"""Schedules of the kernels that TVM generates itself, for NVIDIA GPUs."""

from __future__ import annotations

import tvm
from tvm.s_tir import dlight

from .channel_reduce import ChannelReduce
from .elementwise import Elementwise
from .row_reduce import RowReduce
from .window import Window


def schedule_kernels(target: tvm.target.Target) -> tvm.transform.Pass:
    """A pass that binds every kernel to threads: convoy's rules first, then stock ones.

    TVM's Matmul rule is not among them: it crashes on some convolutions.
    """
    return dlight.ApplyDefaultSchedule(
        Elementwise(),
        ChannelReduce(),
        RowReduce(),
        Window(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )

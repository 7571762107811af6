"""Images times a gate for each channel, a function of a product of a matrix and a vector: the end
of a squeeze-and-excitation block.

Each thread block computes the gates of its channels first, and then applies them to its pixels. A
kernel of their own would take longer to start than the gates to compute.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from .channel_gate_kernel import kernel
from .channel_gate_parts import gated


class ChannelGate(ScheduleRule):
    """A sum of products for each channel, and a function of it and of each pixel."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        try:
            return s_tir.Schedule(kernel(func, gated(func)))
        except s_tir.ScheduleError:
            return None

"""Functions of rows and of what they are reduced to: a norm, a softmax, a deviation, a gate.

TVM's rule has a block of 256 threads for each row, and reads rows that lie next to each other one
by one.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from .row_stages import Unfit
from .row_stages_kernel import kernel


class FusedRows(ScheduleRule):
    """Blocks over the same rows, at least one of which reduces them."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        try:
            return s_tir.Schedule(kernel(func))
        except Unfit:
            return None

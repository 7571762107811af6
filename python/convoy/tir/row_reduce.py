"""Few long sums along memory (the gradient of a softmax): a block of threads for each result.

One thread for each result, as in other rules, would leave most of a GPU idle.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV

from .loads import contiguous_in, loads_of
from .partial_sums import PartialSums, fused, loops_of, share

_MOST_RESULTS = 4096  # more of them fill a GPU with one thread each
_LONGEST_ALONE = 1 << 14  # elements of a single result; more need more than one block
_SHORTEST = 128
_THREADS = 64
_UNROLLED = 16


class RowReduce(PartialSums):
    """One reduction over operands of one shape that is contiguous along the last reduced axis."""

    def fits(self, block: s_tir.SBlock) -> bool:
        loads = loads_of(block)
        if not loads or any(not load.uniform or load.guarded for load in loads):
            return False
        if len({str(load.indices) for load in loads}) > 1:
            return False  # a product of rows and a matrix, which Gemv computes
        reduced = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
        results = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
        if not all(contiguous_in(load, reduced[-1].var) for load in loads):
            return False
        count, length = (math.prod(int(a.dom.extent) for a in axes) for axes in (results, reduced))
        if count == 1 and length > _LONGEST_ALONE:
            return False
        return count <= _MOST_RESULTS and length >= _SHORTEST

    def split(self, sch: s_tir.Schedule, reduction: SBlockInfo) -> LoopRV:
        spatial, rows = loops_of(sch, reduction)
        sch.reorder(*spatial, *rows)
        _, part = sch.split(fused(sch, rows), factors=[None, _THREADS])
        partial = sch.rfactor(part, factor_axis=0)

        *outer, step, part = sch.get_loops(partial)
        sch.reorder(*outer, part, step)
        result = fused(sch, outer)
        sch.bind(result, "blockIdx.x")
        sch.bind(part, "threadIdx.x")
        share(sch, partial, part)
        if int(sch.get(step).extent) <= _UNROLLED:
            sch.unroll(step)
        sch.decompose_reduction(partial, step)
        return result

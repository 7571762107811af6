"""Few long sums along memory (the gradient of a softmax): a block of threads for each result.

The threads of a block take elements in turns, and their sums meet in shared memory. A thread for
each result, as elsewhere, would leave most of a GPU idle.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo

from .loads import contiguous_in, loads_of
from .window import ReductionRule, inline_consumers

_MOST_RESULTS = 4096  # more of them fill a GPU with a thread each
_LONGEST_ALONE = 1 << 14  # elements of one result alone: more of them are worth more threads
_SHORTEST = 128
_THREADS = 64


class RowReduce(ReductionRule):
    """One reduction over one operand that is contiguous along the last reduced axis."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        for info in infos[: infos.index(reduction)]:
            sch.compute_inline(info.block_rv)
        if not _few_long_rows(sch, reduction):
            return False
        _schedule(sch, reduction, inline_consumers(sch, infos, reduction))
        return True


def _few_long_rows(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    block = sch.get(info.block_rv)
    loads = loads_of(block)
    if len(loads) != 1 or not loads[0].uniform or loads[0].guarded:
        return False
    reduced = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    results = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
    if not contiguous_in(loads[0], reduced[-1].var):
        return False
    count, length = (math.prod(int(a.dom.extent) for a in axes) for axes in (results, reduced))
    if count == 1 and length > _LONGEST_ALONE:
        return False
    return count <= _MOST_RESULTS and length >= _SHORTEST


def _schedule(sch: s_tir.Schedule, info: SBlockInfo, final: s_tir.schedule.SBlockRV | None) -> None:
    reduce, kinds = info.block_rv, info.dom_kind()
    loops = sch.get_loops(reduce)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    rows = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    sch.reorder(*spatial, *rows)
    row = sch.fuse(*rows) if len(rows) > 1 else rows[0]
    _, part = sch.split(row, factors=[None, _THREADS])
    partial = sch.rfactor(part, factor_axis=0)

    # First step: each thread sums its elements in a register.
    *outer, step, part = sch.get_loops(partial)
    sch.reorder(*outer, part, step)
    grid = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    sch.bind(grid, "blockIdx.x")
    sch.bind(part, "threadIdx.x")
    shared = sch.cache_write(partial, 0, "local")
    sch.set_scope(shared, 0, "shared")
    sch.reverse_compute_at(shared, part)
    if int(sch.get(step).extent) <= 16:
        sch.unroll(step)
    sch.decompose_reduction(partial, step)

    # Second step: the parts are added by every thread alike.
    if final is None:
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    sch.reverse_compute_at(reduce, grid)
    parts = sch.get_loops(reduce)[-1]
    sch.unroll(parts)
    sch.reverse_compute_at(final, grid)
    sch.decompose_reduction(reduce, parts)

"""Sums that several threads share: partial sums in registers, which meet in shared memory."""

from __future__ import annotations

import math
from typing import NamedTuple

from tvm import s_tir
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from .loads import stage_reads
from .window import ReductionRule, extents, inline_consumers, loops_of

_UNROLLED = 16  # steps of a thread that are written out


class Shares(NamedTuple):
    """How threads divide sums.

    Attributes:
        lanes: Threads of a sum.
        width: Elements next to each other that a thread loads at once.
        results: Sums of a thread block.
    """

    lanes: int
    width: int
    results: int


class PartialSums(ReductionRule):
    """A rule that splits each sum among threads; elementwise producers are inlined into it."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        for info in infos[: infos.index(reduction)]:
            sch.compute_inline(info.block_rv)
        if not self.fits(sch.get(reduction.block_rv)):
            return False
        final = inline_consumers(sch, infos, reduction)
        if final is not None and not sch.get(reduction.block_rv).writes[0].source.shape:
            return False  # TVM cannot split a sum without axes that another block reads
        result = self._sum_parts(sch, reduction)
        _add(sch, reduction.block_rv, final, result)
        return True

    def fits(self, block: s_tir.SBlock) -> bool:
        """Return whether the rule supports a reduction."""
        raise NotImplementedError

    def shares(self, block: s_tir.SBlock, results: int, length: int) -> Shares:
        """Divide so many sums, each of ``length`` elements, among threads."""
        raise NotImplementedError

    def _sum_parts(self, sch: s_tir.Schedule, reduction: SBlockInfo) -> LoopRV:
        """Schedule the partial sums of a reduction and return the loop over its results."""
        spatial, rows = loops_of(sch, reduction)
        sch.reorder(*spatial, *rows)
        row = _fused(sch, [loop for loop in rows if int(sch.get(loop).extent) > 1])
        results, length = math.prod(extents(sch, spatial)), int(sch.get(row).extent)
        shares = self.shares(sch.get(reduction.block_rv), results, length)
        step, lane, vector = sch.split(row, factors=[None, shares.lanes, shares.width])
        sch.reorder(step, vector, lane)
        partial = sch.rfactor(lane, factor_axis=0)

        *outer, step, vector, lane = sch.get_loops(partial)
        grid, result = sch.split(_fused(sch, outer), factors=[None, shares.results])
        sch.reorder(grid, result, lane, step, vector)
        sch.bind(grid, "blockIdx.x")
        sch.bind(result, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        share(sch, partial, lane)
        sch.unroll(vector)
        if int(sch.get(step).extent) <= _UNROLLED:
            sch.unroll(step)
        stage_reads(sch, partial, step, 1, shares.width)
        sch.decompose_reduction(partial, step)
        return result


def _fused(sch: s_tir.Schedule, loops: list[LoopRV]) -> LoopRV:
    """Return one loop for several nested ones."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def share(sch: s_tir.Schedule, partial: SBlockRV, thread: LoopRV) -> None:
    """Accumulate partial sums in registers and write them to shared memory."""
    shared = sch.cache_write(partial, 0, "local")
    sch.set_scope(shared, 0, "shared")
    sch.reverse_compute_at(shared, thread)


def _add(sch: s_tir.Schedule, reduce: SBlockRV, final: SBlockRV | None, result: LoopRV) -> None:
    """Add the partial sums of a result, in each of its threads alike."""
    if final is None:
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    sch.reverse_compute_at(reduce, result)
    parts = sch.get_loops(reduce)[-1]
    sch.unroll(parts)
    sch.reverse_compute_at(final, result)
    sch.decompose_reduction(reduce, parts)

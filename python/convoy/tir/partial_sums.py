"""Sums that several threads share: partial sums in registers, which meet in shared memory."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from .window import ReductionRule, inline_consumers


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
        result = self.split(sch, reduction)
        _add(sch, reduction.block_rv, final, result)
        return True

    def fits(self, block: s_tir.SBlock) -> bool:
        """Return whether the rule supports a reduction."""
        raise NotImplementedError

    def split(self, sch: s_tir.Schedule, reduction: SBlockInfo) -> LoopRV:
        """Schedule the partial sums of a reduction and return the loop over its results."""
        raise NotImplementedError


def loops_of(sch: s_tir.Schedule, reduction: SBlockInfo) -> tuple[list[LoopRV], list[LoopRV]]:
    """Spatial loops and reduction loops of a block."""
    loops = list(zip(sch.get_loops(reduction.block_rv), reduction.dom_kind(), strict=True))
    spatial = [loop for loop, kind in loops if kind == "S"]
    return spatial, [loop for loop, kind in loops if kind == "R"]


def fused(sch: s_tir.Schedule, loops: list[LoopRV]) -> LoopRV:
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

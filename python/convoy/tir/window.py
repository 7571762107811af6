"""Pools, depthwise and other convolutions, GEMMs: each thread reduces for one output vector.

The fallback for everything that no library supports: correct for any stride, dilation, grouping and
fused epilogue. Where the input is contiguous along the output's channels (pools, depthwise) it is
loaded 16 bytes at a time and the kernel runs near memory speed; a dense convolution is merely
correct.
"""

from __future__ import annotations

import math

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from .loads import (
    Load,
    bind_grid,
    contiguous_in,
    loads_of,
    scope_of,
    stage_reads,
    staging_width,
    static_extents,
    vector_width,
    vectorize_copy,
)

_RESIDENT = 1 << 16  # threads that keep a GPU busy
_UNROLL = 256  # unrolled multiply-adds; more costs minutes of compile time per network


class ReductionRule(ScheduleRule):
    """A rule for kernels with one reduction block, elementwise producers and consumers.

    ``schedule`` gets all blocks and the reduction among them, puts producers into it and schedules
    it; it returns False, or raises ScheduleError, for a kernel of another kind.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        found = single_reduction(sch)
        try:
            return sch if found is not None and self.schedule(sch, *found) else None
        except s_tir.ScheduleError:
            return None

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        raise NotImplementedError


class Window(ReductionRule):
    """Any such kernel."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        padding = _inline_producers(sch, infos, reduction)
        _schedule(sch, reduction, inline_consumers(sch, infos, reduction), padding)
        return True


def _schedule(
    sch: s_tir.Schedule, info: SBlockInfo, final: SBlockRV | None, padding: SBlockRV | None
) -> None:
    reduce = info.block_rv
    spatial, steps = loops_of(sch, info)
    written = sch.get(final if final is not None else reduce).writes[0].source
    total = math.prod(extents(sch, spatial))
    if total == 1:  # the store would lose its guard and be done by every thread of the block
        raise s_tir.ScheduleError("one result; a reduction by many threads is better")
    width = _width(sch, reduce, spatial, written.dtype)
    outer, vector = sch.split(spatial[-1], factors=[None, width])
    reduced = _reduced_width(sch, reduce, int(sch.get(steps[-1]).extent))
    inner = [vector]
    if reduced > 1:
        steps[-1], unit = sch.split(steps[-1], factors=[None, reduced])
        inner = [unit, vector]
    sch.reorder(*spatial[:-1], outer, *steps, *inner)
    if final is None:
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    _, thread = bind_grid(sch, [*spatial[:-1], outer], total // width)
    sch.reverse_compute_at(final, thread)
    _unroll(sch, steps, inner)
    if padding is not None:
        sch.compute_at(padding, steps[-1])
        sch.set_scope(padding, 0, "local")
        vectorize_copy(sch, padding, steps[-1], sch.get(padding).writes[0].source.dtype)
    stage_reads(sch, reduce, steps[-1], width, reduced)
    sch.decompose_reduction(reduce, steps[0])
    finish_output(sch, final, thread, width)


def _width(sch: s_tir.Schedule, reduce: SBlockRV, spatial: list[LoopRV], dtype: object) -> int:
    """Results of a thread: a vector, but one where they are few and share nothing that is read."""
    block, results = sch.get(reduce), extents(sch, spatial)
    axes = [axis.var for axis in block.iter_vars if axis.iter_type == tirx.IterVar.DataPar]
    loads = loads_of(block)
    shared = not any(all(load.along(axis) for axis in axes) for load in loads)
    shared = shared or any(contiguous_in(load, axes[-1]) for load in loads)
    width = vector_width(results[-1], dtype)
    return width if shared or math.prod(results) // width >= _RESIDENT else 1


def _reduced_width(sch: s_tir.Schedule, reduce: SBlockRV, extent: int) -> int:
    """Elements of the last reduction axis that a thread loads at once: convolutions and products
    whose operands are contiguous along the input channels."""
    stmt = sch.get(reduce)
    widths = [
        staging_width(stmt, load, 1, vector_width(extent, load.buffer.dtype))
        for load in loads_of(stmt)
        if load.uniform and not load.guarded
    ]
    return max(widths, default=1)


def finish_output(sch: s_tir.Schedule, final: SBlockRV, thread: LoopRV, width: int) -> None:
    """Store ``width`` elements per thread as a vector, with vector loads of the epilogue's
    operands."""
    if width == 1:
        return
    block = sch.get(final)
    if isinstance(block.body.value, tvm.ir.TensorLoad):  # a plain copy out of registers
        vectorize_copy(sch, final, thread, block.writes[0].source.dtype)
        return
    store = sch.cache_write(final, 0, "local")
    sch.reverse_compute_at(store, thread)
    vectorize_copy(sch, store, thread, block.writes[0].source.dtype)
    sch.unroll(sch.get_loops(final)[-1])
    stage_reads(sch, final, thread, width)


def _unroll(sch: s_tir.Schedule, steps: list[LoopRV], inner: list[LoopRV]) -> None:
    """The innermost loops fully, the reduction's as far as the code stays short."""
    size = 1
    for loop in inner:
        size *= int(sch.get(loop).extent)
        sch.unroll(loop)
    for loop in reversed(steps):
        size *= int(sch.get(loop).extent)
        if size > _UNROLL:
            return
        sch.unroll(loop)


def _inline_producers(
    sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo
) -> SBlockRV | None:
    """Inline the producers of the reduction's operands.

    A block that pads an operand which the reduction reads contiguously is not inlined and is
    returned: it becomes a guarded vector load.
    """
    producers = infos[: infos.index(reduction)]
    stmt = sch.get(reduction.block_rv)
    direct = {load.buffer.name: load for load in loads_of(stmt)}
    keep: SBlockInfo | None = None
    for info in producers:
        load = direct.get(sch.get(info.block_rv).writes[0].source.name)
        if load is None or not load.uniform or not _is_padding(sch, info):
            continue
        if staging_width(stmt, load, 2, 2) > 1:
            keep = info
    for info in producers:
        if info is not keep:
            sch.compute_inline(info.block_rv)
    return keep.block_rv if keep is not None else None


def _is_padding(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    """One guarded read of a global buffer, contiguous and of the dtype that is written."""
    block = sch.get(info.block_rv)
    reads: list[Load] = loads_of(block)
    if len(reads) != 1 or not reads[0].guarded:
        return False
    source, target = reads[0].buffer, block.writes[0].source
    same = str(source.dtype) == str(target.dtype) and scope_of(source) == "global"
    return same and contiguous_in(reads[0], block.iter_vars[-1].var)


def loops_of(sch: s_tir.Schedule, info: SBlockInfo) -> tuple[list[LoopRV], list[LoopRV]]:
    """Spatial loops and reduction loops of a block."""
    loops = list(zip(sch.get_loops(info.block_rv), info.dom_kind(), strict=True))
    spatial = [loop for loop, kind in loops if kind == "S"]
    return spatial, [loop for loop, kind in loops if kind == "R"]


def extents(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[int]:
    """Number of iterations of each loop."""
    return [int(sch.get(loop).extent) for loop in loops]


def _elements(sch: s_tir.Schedule, info: SBlockInfo) -> int:
    """Elements that a block writes."""
    return math.prod(extents(sch, loops_of(sch, info)[0]))


def single_reduction(sch: s_tir.Schedule) -> tuple[list[SBlockInfo], SBlockInfo] | None:
    """Return all blocks of a function, and the one that reduces: to one result, with known extents.

    None for functions of another kind.
    """
    infos = normalize_prim_func(sch) or []
    reductions = [info for info in infos if info.is_reduction()]
    if len(reductions) != 1 or any("O" in info.dom_kind() for info in infos):
        return None
    block = reductions[0].block_rv
    if not {"S", "R"} <= set(reductions[0].dom_kind()) or static_extents(sch, block) is None:
        return None
    if any(len(sch.get(info.block_rv).writes) != 1 for info in infos):
        return None  # a value with its index, say, or TVM's own code
    return infos, reductions[0]


def inline_consumers(
    sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo
) -> SBlockRV | None:
    """Return the block that writes the output, every elementwise step between inlined into it; None
    when that is the reduction itself."""
    consumers = infos[infos.index(reduction) + 1 :]
    if consumers and _elements(sch, consumers[-1]) != _elements(sch, reduction):
        raise s_tir.ScheduleError("results that are spread over more elements than were reduced to")
    for info in consumers[:-1]:
        sch.compute_inline(info.block_rv)
    return consumers[-1].block_rv if consumers else None

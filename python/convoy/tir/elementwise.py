"""Elementwise and data-moving kernels: one thread computes 16 bytes of the output.

Operands that are contiguous in the same direction are loaded 16 bytes at a time too. Where an
operand is contiguous along another axis (a layout conversion), neighbouring threads run along that
axis, so that both sides are coalesced: each thread gathers its vector from as many coalesced rows.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import SBlockRV
from tvm.target import Target

from .loads import (
    STAGED,
    VECTOR_LIMIT,
    alignment,
    bind_grid,
    coefficient,
    contiguous_in,
    depends_on,
    is_guarded_copy,
    loads_of,
    stage_reads,
    static_extents,
    vector_width,
    vectorize_copy,
)

#: Channel counts up to here have a thread take whole pixels where no vector divides them.
MOST_NARROW_CHANNELS = 7


class Elementwise(ScheduleRule):
    """Kernels that become one block without reductions once producers are inlined."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        infos = normalize_prim_func(sch)
        if not infos or not all(info.is_injective() for info in infos):
            return None
        try:
            return _schedule(sch, infos)
        except s_tir.ScheduleError:
            return None


def _schedule(sch: s_tir.Schedule, infos: list[SBlockInfo]) -> s_tir.Schedule | None:
    block = infos[-1].block_rv
    copies = _inline_producers(sch, infos[:-1])
    extents = static_extents(sch, block)
    if not extents or not _writes_in_order(sch.get(block)):
        return None
    width = _vector_of(sch, [*copies, block], extents[-1])
    copies = _inline_scattered(sch, block, copies, width)
    along = _coalescing_axis(sch.get(block))
    if not copies and width == 1 and along == len(extents) - 2:
        pixels = vector_width(extents[along], sch.get(block).writes[0].source.dtype)
        if pixels > 1 and extents[-1] <= MOST_NARROW_CHANNELS:
            return _narrow_rows(sch, block, extents, pixels)
    return _vectors(sch, block, copies, extents, width, along)


def _inline_producers(sch: s_tir.Schedule, producers: list[SBlockInfo]) -> list[SBlockRV]:
    """Inline blocks into their readers, but for padding and concatenation, which stay blocks of
    their own in front of arithmetic.

    Whether a block is one is asked in order, because arithmetic behind which it comes has been put
    into it by then.
    """
    copies = []
    for info in producers:
        if is_guarded_copy(sch.get(info.block_rv)) or _is_staged(sch, info.block_rv):
            copies.append(info.block_rv)
        else:
            sch.compute_inline(info.block_rv)
    return copies


def _vector_of(sch: s_tir.Schedule, blocks: list[SBlockRV], extent: int) -> int:
    """Return the elements that a thread computes: those of the last block's vectors, unless a block
    is limited to fewer."""
    width = vector_width(extent, sch.get(blocks[-1]).writes[0].source.dtype)
    limits = [sch.get(block).annotations.get(VECTOR_LIMIT) for block in blocks]
    return min([width, *(int(limit) for limit in limits if limit is not None)])


def _inline_scattered(
    sch: s_tir.Schedule, block: SBlockRV, copies: list[SBlockRV], width: int
) -> list[SBlockRV]:
    """Inline copies that cannot move vectors, or need not, and return the others."""
    kept = []
    for copy in copies:
        alone = width == 1 and _is_staged(sch, copy)
        if alone or not _reads_in_order(sch.get(block), sch.get(copy)):
            sch.compute_inline(copy)
        else:
            kept.append(copy)
    return kept


def _vectors(
    sch: s_tir.Schedule, block: SBlockRV, copies: list[SBlockRV], extents: list[int], width: int,
    along: int | None,
) -> s_tir.Schedule:  # fmt: skip
    """Give each thread ``width`` neighbours; neighbouring threads run along axis ``along`` of the
    block, or the last one."""
    direct = is_guarded_copy(sch.get(block))
    store = block if direct else sch.cache_write(block, 0, "local")
    # The store has a loop for each dimension; the block has no axis for those of size 1.
    loops = sch.get_loops(store)
    ones = [loop for loop in loops if int(sch.get(loop).extent) == 1][: len(loops) - len(extents)]
    axes = [loop for loop in loops if loop not in ones]
    outer, vector = sch.split(axes[-1], factors=[None, width])
    order = [*axes[:-1], outer]
    if along is not None:
        order.append(order.pop(along))
    order = [*ones, *order]
    sch.reorder(*order, vector)
    for copy in copies:
        sch.set_scope(copy, 0, "local")
    _, thread = bind_grid(sch, order, math.prod(extents) // width)
    vectorize_copy(sch, store, thread, sch.get(store).writes[0].source.dtype)
    if not direct:
        sch.compute_at(block, thread)
        if width > 1:
            sch.unroll(sch.get_loops(block)[-1])
        stage_reads(sch, block, thread, width)
    for copy in reversed(copies):
        sch.compute_at(copy, thread)
        vectorize_copy(sch, copy, thread, sch.get(copy).writes[0].source.dtype)
    return sch


def _narrow_rows(
    sch: s_tir.Schedule, block: SBlockRV, extents: list[int], pixels: int
) -> s_tir.Schedule:
    """Few channels last, read from channels first (an RGB picture): a thread takes all channels of
    ``pixels`` neighbours, which are a run of pixels * channels elements in the output and of
    ``pixels`` in each channel of the input. One element a thread would leave most of each write
    transaction unused."""
    axis = sch.get(block).iter_vars[-2].var
    dtype = sch.get(block).writes[0].source.dtype
    store = sch.cache_write(block, 0, "local")
    *outer, width, channel = sch.get_loops(store)
    groups, inner = sch.split(width, factors=[None, pixels])
    _, thread = bind_grid(sch, [*outer, groups], math.prod(extents[:-1]) // pixels)
    run = sch.fuse(inner, channel)
    parts, vector = sch.split(run, factors=[None, vector_width(pixels * extents[-1], dtype)])
    sch.unroll(parts)
    sch.vectorize(vector)
    sch.compute_at(block, thread)
    for loop in sch.get_loops(block)[-2:]:
        sch.unroll(loop)
    stmt = sch.get(block)
    aligned = {
        load.buffer.name: alignment(load, axis)
        for load in loads_of(stmt)
        if load.uniform and not load.guarded and contiguous_in(load, axis)
    }
    for index, region in enumerate(stmt.reads):
        if region.source.name in aligned:
            copy = sch.cache_read(block, index, "local", [block])
            sch.compute_at(copy, thread)
            vectorize_copy(sch, copy, thread, region.source.dtype, aligned[region.source.name])
    return sch


def _is_staged(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    return STAGED in sch.get(block).annotations


def _reads_in_order(reader: s_tir.SBlock, copy: s_tir.SBlock) -> bool:
    """Return whether neighbouring elements of ``reader`` read neighbouring ones of a copy, and
    those were neighbours where they were copied from."""
    copied = copy.writes[0].source
    loads = [load for load in loads_of(reader) if load.buffer.same_as(copied)]
    return all(contiguous_in(load, reader.iter_vars[-1].var) for load in loads) and all(
        contiguous_in(load, copy.iter_vars[-1].var) for load in loads_of(copy)
    )


def _writes_in_order(block: s_tir.SBlock) -> bool:
    """Whether the output is indexed by the block's axes one by one, in order (dimensions of size 1
    have no axis)."""
    if not isinstance(block.body, tirx.BufferStore):
        return False
    axes = [axis.var for axis in block.iter_vars]
    indices = [i for i in block.body.indices if not isinstance(i, tirx.IntImm)]
    return len(axes) == len(indices) and all(
        isinstance(i, tirx.Var) and i.same_as(a) for i, a in zip(indices, axes, strict=True)
    )


def _coalescing_axis(block: s_tir.SBlock) -> int | None:
    """Return the axis that neighbouring threads should run along instead of the last one: that
    along which the largest operand not contiguous in the last axis is (nearly) contiguous."""
    axes = [axis.var for axis in block.iter_vars]
    best, size = None, 0
    for load in loads_of(block):
        elements = math.prod(int(d) for d in load.buffer.shape)
        if not load.indices or contiguous_in(load, axes[-1]) or elements <= size:
            continue
        for position, axis in enumerate(axes[:-1]):
            factor = coefficient(load.indices[-1], axis)
            if factor is not None and 1 <= factor <= 4:
                best, size = position, elements
            elif factor is None and depends_on(load.indices[-1], axis):
                continue
    return best

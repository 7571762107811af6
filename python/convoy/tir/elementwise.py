"""Elementwise and data-moving kernels: one thread computes 16 bytes of the output.

Operands that are contiguous in the same direction are loaded 16 bytes at a time too. Where an
operand is contiguous along another axis (a layout conversion), neighbouring threads run along that
axis, so that both sides are coalesced: each thread gathers its vector from as many coalesced rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from .loads import (
    STAGED,
    VECTOR_LIMIT,
    Load,
    alignment,
    bind_grid,
    coefficient,
    contiguous_in,
    depends_on,
    is_guarded_copy,
    is_select,
    loads_of,
    scope_of,
    stage_reads,
    static_extents,
    vector_width,
    vectorize_copy,
    writes_in_order,
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
        if any(len(sch.get(info.block_rv).writes) != 1 for info in infos):
            return None  # of TVM's own code, such as a sort
        try:
            return _schedule(sch, infos)
        except s_tir.ScheduleError:
            return None


def _schedule(sch: s_tir.Schedule, infos: list[SBlockInfo]) -> s_tir.Schedule | None:
    blocks = [info.block_rv for info in infos]
    block = blocks[-1]
    kept = _inline_producers(sch, blocks)
    extents = static_extents(sch, block)
    if not extents or not writes_in_order(sch.get(block)):
        return None
    width = _vector_of(sch, [*kept, block], extents[-1])
    kept = _inline_scattered(sch, block, kept, width)
    along = _coalescing_axis(sch.get(block))
    if not kept and width == 1 and along == len(extents) - 2:
        pixels = vector_width(extents[along], sch.get(block).writes[0].source.dtype)
        if pixels > 1 and extents[-1] <= MOST_NARROW_CHANNELS:
            return _narrow_rows(sch, block, extents, pixels)
    return _vectors(sch, block, kept, extents, width, along)


def _inline_producers(sch: s_tir.Schedule, blocks: list[SBlockRV]) -> list[SBlockRV]:
    """Inline blocks into their readers and return the others: copies in front of arithmetic, of
    which those of parts only where they are several of one tensor, and arithmetic in front of a
    concatenation.

    Whether a block is one is asked in order, because arithmetic behind which it comes has been put
    into it by then.
    """
    kept: list[SBlockRV] = []
    for number, block in enumerate(blocks[:-1]):
        stmt, behind = sch.get(block), map(sch.get, blocks[number + 1 :])
        readers = _readers(stmt, behind)
        gathered = bool(readers) and all(map(_chooses_vectors, readers))
        keeps = _is_computed_in_order(stmt) if gathered else _is_part(stmt)
        if is_guarded_copy(stmt) or _is_staged(stmt) or keeps:
            kept.append(block)
        else:
            sch.compute_inline(block)
    return kept


def _vector_of(sch: s_tir.Schedule, blocks: list[SBlockRV], extent: int) -> int:
    """Return the elements that a thread computes: those of the last block's vectors, unless a block
    is limited to fewer."""
    width = vector_width(extent, sch.get(blocks[-1]).writes[0].source.dtype)
    limits = [sch.get(block).annotations.get(VECTOR_LIMIT) for block in blocks]
    return min([width, *(int(limit) for limit in limits if limit is not None)])


def _inline_scattered(
    sch: s_tir.Schedule, block: SBlockRV, kept: list[SBlockRV], width: int
) -> list[SBlockRV]:
    """Inline blocks that cannot move vectors, or need not, and return the others."""
    left: list[SBlockRV] = []
    for number, producer in reversed(list(enumerate(kept))):
        stmt, last = sch.get(producer), sch.get(block)
        behind = [*map(sch.get, left), last]
        readers = _readers(stmt, behind)
        if is_guarded_copy(stmt):
            fits = _is_copied_in_order(stmt)
        elif _is_staged(stmt):
            fits = width > 1 and _is_copied_in_order(stmt)
        elif _is_part(stmt):
            beside = [part for part in map(sch.get, kept[:number]) if _is_part(part)]
            fits = width > 1 and len(readers) == 1 and _is_one_of_several(stmt, [*beside, *behind])
        else:
            fits = width > 1 and all(map(_chooses_vectors, readers))
        loads = [load for reader in readers for load in _loads_of_result(reader, stmt)]
        fits = fits and _is_under_one_condition(loads)
        if fits and all(_reads_in_order(reader, stmt) for reader in readers):
            left.insert(0, producer)
        else:
            sch.compute_inline(producer)
    return left


def _vectors(
    sch: s_tir.Schedule, block: SBlockRV, kept: list[SBlockRV], extents: list[int], width: int,
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
    for producer in kept:
        sch.set_scope(producer, 0, "local")
    _, thread = bind_grid(sch, order, math.prod(extents) // width)
    vectorize_copy(sch, store, thread, sch.get(store).writes[0].source.dtype)
    if not direct:
        sch.compute_at(block, thread)
        _compute(sch, block, thread, width)
    for producer in reversed(kept):
        sch.compute_at(producer, thread)
        stmt = sch.get(producer)
        if _moves(stmt):
            aligned = min(alignment(load, stmt.iter_vars[-1].var) for load in loads_of(stmt))
            vectorize_copy(sch, producer, thread, stmt.writes[0].source.dtype, aligned)
        else:
            _compute(sch, producer, thread, width)
    return sch


def _compute(sch: s_tir.Schedule, block: SBlockRV, thread: LoopRV, width: int) -> None:
    """Write out the arithmetic of a thread, with vector loads of its operands."""
    if width > 1:
        sch.unroll(sch.get_loops(block)[-1])
    stage_reads(sch, block, thread, width)


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


def _is_staged(block: s_tir.SBlock) -> bool:
    return STAGED in block.annotations


def _is_part(block: s_tir.SBlock) -> bool:
    """Whether a block copies elements of a tensor that lie side by side. Several of them inlined
    would be reads of one tensor at several places, none of which is staged in registers."""
    if not isinstance(block.body, tirx.BufferStore) or not block.iter_vars:
        return False
    value = block.body.value
    is_load = isinstance(value, tvm.ir.TensorLoad) and scope_of(value.source) == "global"
    return is_load and _is_copied_in_order(block)


def _is_one_of_several(part: s_tir.SBlock, others: list[s_tir.SBlock]) -> bool:
    """Whether the last of ``others`` reads, besides a part of a tensor, others of it or the tensor
    itself, and not as the case may be."""
    *beside, reader = others
    written, source = part.writes[0].source, part.body.value.source
    plain = any(load.buffer.same_as(written) and not load.guarded for load in loads_of(reader))
    beside = [other for other in beside if _is_part(other) and _readers(other, [reader])]
    return plain and any(_reads(other, source) for other in [*beside, reader])


def _moves(block: s_tir.SBlock) -> bool:
    """Whether a block is a copy and not arithmetic."""
    return _is_staged(block) or is_guarded_copy(block) or _is_part(block)


def _reads(block: s_tir.SBlock, buffer: tirx.Buffer) -> bool:
    return any(region.source.same_as(buffer) for region in block.reads)


def _readers(block: s_tir.SBlock, behind: Iterable[s_tir.SBlock]) -> list[s_tir.SBlock]:
    """Return the blocks ``behind`` one that read what it writes."""
    return [reader for reader in behind if _reads(reader, block.writes[0].source)]


def _loads_of_result(reader: s_tir.SBlock, producer: s_tir.SBlock) -> list[Load]:
    written = producer.writes[0].source
    return [load for load in loads_of(reader) if load.buffer.same_as(written)]


def _reads_in_order(reader: s_tir.SBlock, producer: s_tir.SBlock) -> bool:
    """Return whether neighbouring elements of ``reader`` read neighbouring ones of a producer."""
    loads = _loads_of_result(reader, producer)
    return all(contiguous_in(load, reader.iter_vars[-1].var) for load in loads)


def _is_under_one_condition(loads: list[Load]) -> bool:
    """Return whether a producer that is read under a condition is read at one place: TVM computes
    it under one condition only, where a tensor that is concatenated with itself has two."""
    return not any(load.guarded for load in loads) or (len(loads) == 1 and loads[0].uniform)


def _is_copied_in_order(copy: s_tir.SBlock) -> bool:
    """Return whether neighbouring elements of a copy were neighbours where it reads them."""
    return all(contiguous_in(load, copy.iter_vars[-1].var) for load in loads_of(copy))


def _is_computed_in_order(block: s_tir.SBlock) -> bool:
    """Return whether a block is arithmetic of operands that are read in the order of its result."""
    if not isinstance(block.body, tirx.BufferStore) or not block.iter_vars:
        return False
    last = block.iter_vars[-1].var
    is_copy = isinstance(block.body.value, tvm.ir.TensorLoad)
    in_order = (contiguous_in(load, last) or not load.along(last) for load in loads_of(block))
    return not is_copy and all(in_order)


def _chooses_vectors(block: s_tir.SBlock) -> bool:
    """Return whether a block only moves elements, choosing alike for all elements of a vector."""
    if not is_guarded_copy(block):
        return False
    last = block.iter_vars[-1].var
    chosen: list[bool] = []

    def visit(call: tvm.ir.Call) -> None:
        if is_select(call):
            chosen.append(depends_on(call.args[0], last))

    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, visit)])
    return VECTOR_LIMIT in block.annotations or not any(chosen)


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

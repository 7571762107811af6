"""Sums over rows of channels-last tensors (global average pool): many rows, contiguous channels.

A block covers some channels, 16 bytes per thread, and splits the rows over ``threadIdx.y``; partial
sums are combined in shared memory: first in groups, a thread for some channels of each, then by
every thread that finishes channels. This keeps enough loads in flight for few outputs; if there are
few blocks, each covers fewer channels.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from .loads import contiguous_in, loads_of, stage_reads, vector_width, vectorize_copy
from .window import ReductionRule, extents, finish_output, inline_consumers, loops_of

_MIN_ROWS = 16  # shorter reductions are better off in one thread (see Window)
_CHANNEL_THREADS = 32
_ROW_THREADS = 8
_BLOCKS = 264  # fewer leave part of a GPU idle
_UNROLLED = 16  # steps of a thread that are written out
#: Parts times threads of a block.
_LONGEST_SUM = 16384


class ChannelReduce(ReductionRule):
    """One reduction over operands of which one has all axes and is contiguous along the last output
    axis; the others are spread over it (a bias, the weight of each row)."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        for info in infos[: infos.index(reduction)]:
            sch.compute_inline(info.block_rv)
        if not _sums_rows(sch, reduction):
            return False
        _schedule(sch, reduction, inline_consumers(sch, infos, reduction))
        return True


def _sums_rows(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    block = sch.get(info.block_rv)
    spatial = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
    rows = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    loads, channel = loads_of(block), spatial[-1]
    # Windows, whose rows overlap, are the Window rule's.
    if not loads or int(channel.dom.extent) < 8 or not all(load.plain for load in loads):
        return False
    if any(load.along(channel.var) and not contiguous_in(load, channel.var) for load in loads):
        return False
    if not any(all(load.along(axis.var) for axis in block.iter_vars) for load in loads):
        return False
    return math.prod(int(a.dom.extent) for a in rows) >= _MIN_ROWS


def _schedule(sch: s_tir.Schedule, info: SBlockInfo, final: SBlockRV | None) -> None:
    reduce = info.block_rv
    spatial, rows = loops_of(sch, info)
    *others, channels = extents(sch, spatial)
    read = loads_of(sch.get(reduce))
    width = min(vector_width(channels, load.buffer.dtype) for load in read)
    lanes = _lanes(channels // width, math.prod(others), 1 if width > 1 else 2)
    sch.reorder(*spatial, *rows)
    row = sch.fuse(*rows) if len(rows) > 1 else rows[0]
    parts = _parts(int(sch.get(row).extent), lanes)
    _, part = sch.split(row, factors=[None, parts])
    partial = sch.rfactor(part, factor_axis=0)
    groups = _groups(sch, reduce, math.gcd(parts, width))
    grid = _sum_parts(sch, partial, lanes, width)
    if groups is not None:
        _join_groups(sch, groups, grid, lanes, width)
    _join_parts(sch, reduce, final, grid, lanes, width)


def _sum_parts(sch: s_tir.Schedule, partial: SBlockRV, lanes: int, width: int) -> LoopRV:
    """Have each (part, lane) thread sum its rows of ``width`` channels in registers; return the
    loop over blocks."""
    *outer_axes, step, part = sch.get_loops(partial)
    outer, lane, vector = sch.split(outer_axes[-1], factors=[None, lanes, width])
    sch.reorder(*outer_axes[:-1], outer, part, lane, step, vector)
    grid = sch.fuse(*outer_axes[:-1], outer) if len(outer_axes) > 1 else outer
    sch.bind(grid, "blockIdx.x")
    sch.bind(part, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.unroll(vector)
    shared = sch.cache_write(partial, 0, "local")
    sch.set_scope(shared, 0, "shared")
    sch.reverse_compute_at(shared, lane)
    vectorize_copy(sch, shared, lane, sch.get(shared).writes[0].source.dtype)
    _keep_loads_in_flight(sch, step)
    stage_reads(sch, partial, sch.get_loops(partial)[-2], width)
    sch.decompose_reduction(partial, sch.get_loops(partial)[3])
    return grid


def _groups(sch: s_tir.Schedule, reduce: SBlockRV, size: int) -> SBlockRV | None:
    """The sums of groups of ``size`` parts, which are then what the reduction adds; None where each
    or all of the parts are one."""
    part = sch.get_loops(reduce)[-1]
    if size in (1, int(sch.get(part).extent)):
        return None
    group, _ = sch.split(part, factors=[None, size])
    return sch.rfactor(group, factor_axis=0)


def _join_groups(
    sch: s_tir.Schedule, groups: SBlockRV, grid: LoopRV, lanes: int, width: int
) -> None:
    """Deal the sums of groups out to the threads of a channel: each adds the parts of one group,
    for a share of the channels of its vector, into shared memory."""
    sch.reverse_compute_at(groups, grid)
    _, group, part, chunk = sch.get_loops(groups)
    size = int(sch.get(part).extent)
    lane, share, own = sch.split(chunk, factors=[lanes, size, width // size])
    sch.reorder(lane, group, share, part, own)
    thread = sch.fuse(group, share)
    sch.bind(lane, "threadIdx.x")
    sch.bind(thread, "threadIdx.y")
    sch.unroll(part)
    sch.unroll(own)
    shared = sch.cache_write(groups, 0, "local")
    sch.set_scope(shared, 0, "shared")
    sch.reverse_compute_at(shared, thread)
    sch.decompose_reduction(groups, part)


def _join_parts(
    sch: s_tir.Schedule, reduce: SBlockRV, final: SBlockRV | None, grid: LoopRV, lanes: int,
    width: int,
) -> None:  # fmt: skip
    """Have one thread add the parts of a channel (each threadIdx.y alike) and finish it."""
    if final is None:
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    sch.reverse_compute_at(reduce, grid)
    _, *below = sch.get_loops(reduce)  # loops follow the order of the block's axes
    reduction_first = sch.get(reduce).iter_vars[0].iter_type == tirx.IterVar.CommReduce
    parts_loop, chunk = below if reduction_first else reversed(below)
    lane, vector = sch.split(chunk, factors=[lanes, width])
    sch.bind(lane, "threadIdx.x")
    sch.reorder(lane, parts_loop, vector)
    sch.unroll(vector)
    sch.unroll(parts_loop)
    sch.reverse_compute_at(final, lane)
    sch.decompose_reduction(reduce, parts_loop)
    finish_output(sch, final, lane, width)


def _lanes(groups: int, others: int, fewest: int) -> int:
    """Threads side by side: the largest divisor of ``groups`` that leaves enough blocks, or the
    smallest from ``fewest`` on. An even one where it can be: a sector of memory has two
    vectors."""
    fits = [n for n in range(fewest, min(groups, _CHANNEL_THREADS) + 1) if groups % n == 0]
    enough = [n for n in fits if others * groups // n >= _BLOCKS]
    even = [n for n in enough if n % 2 == 0]
    return max(even or enough, default=min(fits, default=1))


def _parts(rows: int, lanes: int) -> int:
    """Threads that share a channel. A divisor of the rows where one is near enough: a load that may
    lie behind the last row is a branch, for which those behind it wait."""
    wanted = _ROW_THREADS
    while (2 * wanted) ** 2 * lanes <= _LONGEST_SUM and rows >= wanted * 8:
        wanted *= 2
    even = (n for n in range(wanted * 3 // 2, wanted // 2, -1) if rows % n == 0)
    return next(even, wanted)


def _keep_loads_in_flight(sch: s_tir.Schedule, step: LoopRV) -> None:
    """Unroll the row loop, of a long one as many steps at a time as divide it, about eight."""
    extent = int(sch.get(step).extent)
    if extent <= _UNROLLED:
        sch.unroll(step)
        return
    even = (n for n in range(_UNROLLED, _UNROLLED // 4, -1) if extent % n == 0)
    _, inner = sch.split(step, factors=[None, next(even, _UNROLLED // 2)])
    sch.unroll(inner)

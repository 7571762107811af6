"""Products of two activations that no library takes (channel attention, linear attention).

A block computes a tile of results. Its threads load tiles of both operands into shared memory and
keep a small tile of sums each in registers. Where there are few results and long sums, the threads
of a block split the sum too, and partial sums meet in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from .loads import loads_of, loops_below, vector_width
from .partial_sums import share
from .window import ReductionRule, finish_output, inline_consumers

_FEWEST = 8  # rows, columns and summands; with fewer a tile has no use for its loads
_BLOCKS = 132  # fewer leave SMs of an H200 idle
_THREADS, _MOST_THREADS = 256, 1024
_STEP = 16  # summands of a thread between two loads of a tile

#: Threads along either side of a tile, and results of each of them along it; largest tile first.
_TILES = ((16, 4), (8, 4), (8, 2), (8, 1))


@dataclass(frozen=True)
class _Axes:
    """Places of the tiled loops among those of a block."""

    row: int
    column: int
    summed: int


class BatchMatmul(ReductionRule):
    """A sum over one axis of products of two operands, each with an axis that the other lacks."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        for info in infos[: infos.index(reduction)]:
            sch.compute_inline(info.block_rv)
        axes = _axes(sch.get(reduction.block_rv))
        if axes is None:
            return False
        _schedule(sch, reduction.block_rv, inline_consumers(sch, infos, reduction), axes)
        return True


def _axes(block: s_tir.SBlock) -> _Axes | None:
    """Return the axes of a product; None for a sum of another kind."""
    loads, variables = loads_of(block), [axis.var for axis in block.iter_vars]
    if len(loads) != 2 or not all(load.plain for load in loads):
        return None
    extents = [int(axis.dom.extent) for axis in block.iter_vars]
    summed = [i for i, a in enumerate(block.iter_vars) if a.iter_type == tirx.IterVar.CommReduce]
    used = [{i for i, v in enumerate(variables) if load.along(v)} for load in loads]
    sides = [used[0] - used[1], used[1] - used[0]]
    if len(summed) != 1 or not all(sides) or summed[0] not in used[0] & used[1]:
        return None
    one, other = (max(side, key=lambda i: (extents[i], i)) for side in sides)
    axes = _Axes(min(one, other), max(one, other), summed[0])
    rows, columns, summands = (extents[i] for i in (axes.row, axes.column, axes.summed))
    few = max(min(rows, columns), summands) < _STEP  # as windows of 3x3 elements that are weighted
    return None if few or min(rows, columns, summands) < _FEWEST else axes


def _schedule(sch: s_tir.Schedule, reduce: SBlockRV, final: SBlockRV | None, axes: _Axes) -> None:
    if final is None:  # before any split: the store keeps its guard
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    loops = sch.get_loops(reduce)
    extents = [int(sch.get(loop).extent) for loop in loops]
    row, column, summed = (loops[i] for i in (axes.row, axes.column, axes.summed))
    batch = [i for i in range(len(loops)) if i not in (axes.row, axes.column, axes.summed)]
    count = math.prod(extents[i] for i in batch)
    threads, own = _tile(count, extents[axes.row], extents[axes.column])
    tile = threads * own
    blocks = count * -(-extents[axes.row] // tile) * -(-extents[axes.column] // tile)
    parts = _parts(extents[axes.summed], threads, blocks)

    rows, y, i = sch.split(row, factors=[None, threads, own])
    columns, x, j = sch.split(column, factors=[None, threads, own])
    grid = [*(loops[i] for i in batch), rows, columns]
    if parts == 1:
        step, k = sch.split(summed, factors=[None, _STEP])
        sch.reorder(*grid, y, x, step, k, i, j)
        _bind(sch, grid, y, x)
        sch.reverse_compute_at(final, x)
        _tiled(sch, reduce, step, (1, threads, threads))
        _finish(sch, final, x, own)
        return

    step, part, k = sch.split(summed, factors=[None, parts, _STEP])
    sch.reorder(*grid, y, x, i, j, step, part, k)
    partial = sch.rfactor(part, factor_axis=0)
    *grid, y, x, i, j, step, part, k = sch.get_loops(partial)
    sch.reorder(*grid, part, y, x, step, k, i, j)
    block = _bind(sch, grid, y, x)
    sch.bind(part, "threadIdx.z")
    share(sch, partial, x)
    _tiled(sch, partial, step, (parts, threads, threads))
    _add(sch, reduce, final, block, own, threads)


def _tile(batch: int, rows: int, columns: int) -> tuple[int, int]:
    """Choose the largest tile that is mostly full and leaves enough blocks, or the smallest."""
    for threads, own in _TILES:
        size = threads * own
        full = 2 * size <= 3 * min(rows, columns)
        if full and batch * -(-rows // size) * -(-columns // size) >= _BLOCKS:
            return threads, own
    return _TILES[-1]


def _parts(length: int, threads: int, blocks: int) -> int:
    """Threads that share a sum: as fill a block, with two steps or more for each; where there is
    fewer blocks than SMs, as many as a block may have."""
    most = _MOST_THREADS if blocks < _BLOCKS else _THREADS
    parts = 1
    while 2 * parts * threads**2 <= most and length >= 4 * parts * _STEP:
        parts *= 2
    return parts


def _bind(sch: s_tir.Schedule, grid: list[LoopRV], y: LoopRV, x: LoopRV) -> LoopRV:
    block = sch.fuse(*grid)
    for loop, index in ((block, "blockIdx.x"), (y, "threadIdx.y"), (x, "threadIdx.x")):
        sch.bind(loop, index)
    return block


def _tiled(
    sch: s_tir.Schedule, block: SBlockRV, step: LoopRV, threads: tuple[int, int, int]
) -> None:
    """Load tiles of both operands at each step, and sum them up in registers."""
    for index in range(len(sch.get(block).reads)):
        copy = sch.cache_read(block, index, "shared", [block])
        sch.compute_at(copy, step)
        _load_together(sch, copy, step, threads)
    for loop in sch.get_loops(block)[-3:]:
        sch.unroll(loop)
    sch.decompose_reduction(block, step)


def _load_together(
    sch: s_tir.Schedule, copy: SBlockRV, step: LoopRV, threads: tuple[int, int, int]
) -> None:
    """Spread a copy over all threads of a block, in the widest vectors."""
    source = sch.get(copy).reads[0].source
    *_, last = loops_below(sch, copy, step)
    run = math.gcd(int(sch.get(last).extent), int(source.shape[-1]))
    _, vector = sch.split(last, factors=[None, vector_width(run, source.dtype)])
    together = sch.fuse(*loops_below(sch, copy, step)[:-1])
    turn, *own = sch.split(together, factors=[None, *threads])
    sch.unroll(turn)
    for loop, axis in zip(own, "zyx", strict=True):
        sch.bind(loop, f"threadIdx.{axis}")
    sch.vectorize(vector)


def _add(
    sch: s_tir.Schedule,
    reduce: SBlockRV,
    final: SBlockRV,
    block: LoopRV,
    own: int,
    threads: int,
) -> None:
    """Add the parts of each result, by each ``threadIdx.z`` alike."""
    sch.reverse_compute_at(reduce, block)
    below = loops_below(sch, reduce, block)  # they follow the order of the block's axes
    reduction_first = sch.get(reduce).iter_vars[0].iter_type == tirx.IterVar.CommReduce
    part, row, column = below if reduction_first else (below[-1], *below[:-1])
    y, i = sch.split(row, factors=[threads, own])
    x, j = sch.split(column, factors=[threads, own])
    sch.reorder(y, x, part, i, j)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.reverse_compute_at(final, x)
    for loop in (part, i, j):
        sch.unroll(loop)
    sch.decompose_reduction(reduce, part)
    _finish(sch, final, x, own)


def _finish(sch: s_tir.Schedule, final: SBlockRV, thread: LoopRV, own: int) -> None:
    """Store a thread's results, as vectors if rows are contiguous."""
    if own == 1:
        return
    *_, last = loops_below(sch, final, thread)
    written = sch.get(final).writes[0].source
    whole = int(sch.get(last).extent) == own and int(written.shape[-1]) % own == 0
    finish_output(sch, final, thread, own if whole else 1)

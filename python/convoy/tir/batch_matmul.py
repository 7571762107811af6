"""Products of two activations that no library takes (channel attention, linear attention).

A block computes a tile of results. Its threads load tiles of both operands into shared memory and
keep a small tile of sums each in registers. Where there are few results and long sums, the threads
of a block split the sum too, and partial sums meet in shared memory.

What only moves an operand (a slice, a permutation, a reshape) is part of its loads, and what moves
the results is part of the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..ir.dtypes import DTYPE_BYTES
from .loads import alignment, contiguous_in, loads_of, loops_below, vector_width
from .partial_sums import share
from .window import ReductionRule, finish_output, single_reduction

_FEWEST = 8  # rows, columns and summands; with fewer a tile has no use for its loads
_BLOCKS = 132  # fewer leave SMs of an H200 idle
_THREADS, _MOST_THREADS = 256, 1024
_STEP = 16  # summands of a thread between two loads of a tile
_VECTOR_BYTES = 16

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
        axes = _axes(sch.get(reduction.block_rv))
        if axes is None:
            return False
        place = infos.index(reduction)
        _inline_producers(sch, infos[:place], reduction.block_rv)
        _schedule(sch, reduction.block_rv, _store(sch, infos[place + 1 :]), axes)
        return True


def is_product(func: tirx.PrimFunc) -> bool:
    """Return whether a function is a product that the rule schedules."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    if not any(_sums(block) and _axes(block) is not None for block in blocks):
        return False  # known without a schedule, which takes longer to make than most passes
    sch = s_tir.Schedule(func)
    found = single_reduction(sch)
    return found is not None and _axes(sch.get(found[1].block_rv)) is not None


def _sums(block: s_tir.SBlock) -> bool:
    """Whether a block sums, over axes of known lengths."""
    kinds = {axis.iter_type for axis in block.iter_vars}
    known = all(isinstance(axis.dom.extent, tirx.IntImm) for axis in block.iter_vars)
    return known and tirx.IterVar.CommReduce in kinds


def _inline_producers(
    sch: s_tir.Schedule, producers: list[SBlockInfo], reduction: SBlockRV
) -> None:
    """Inline what operands are computed from, into what computes them a tile at a time."""
    operands = {region.source for region in sch.get(reduction).reads}
    for info in producers:
        if sch.get(info.block_rv).writes[0].source in operands:
            _along_memory(sch, info.block_rv)
        else:
            sch.compute_inline(info.block_rv)


def _along_memory(sch: s_tir.Schedule, operand: SBlockRV) -> None:
    """Order the axes of an operand that is computed as its source lies in memory."""
    block = sch.get(operand)
    axes, stored = [axis.var for axis in block.iter_vars], list(block.body.indices)
    last = next((v for v in axes if any(contiguous_in(x, v) for x in loads_of(block))), axes[-1])
    for_loops = sorted(range(len(axes)), key=lambda i: axes[i].same_as(last))
    for_buffer = sorted(range(len(stored)), key=lambda i: last.same_as(stored[i]))
    sch.transform_layout(operand, ("write", 0), lambda *at: [at[i] for i in for_buffer])
    sch.reorder_block_iter_var(operand, for_loops)


def _store(sch: s_tir.Schedule, consumers: list[SBlockInfo]) -> SBlockRV | None:
    """Return the block that writes the output, in the order of the product; None when that is the
    product itself."""
    if not consumers:
        return None
    first, *others = (info.block_rv for info in consumers)
    kept = []
    for number, other in enumerate(others):
        # One of several that read a value, as the sigmoid of x * sigmoid(x), goes into the last.
        read = {load.buffer for load in loads_of(sch.get(other))}
        later = (sch.get(block) for block in others[number + 1 :])
        if any(load.buffer in read for block in later for load in loads_of(block)):
            sch.compute_inline(other)
        else:
            kept.append(other)
    for other in kept:
        sch.reverse_compute_inline(other)
    return first


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
    # Where the store joins axes, a vector may not lie across the end of one.
    joins = any(not isinstance(i, (tirx.Var, tirx.IntImm)) for i in sch.get(final).body.indices)
    whole = extents[axes.row] % tile == 0 and extents[axes.column] % tile == 0
    vector = own if whole or not joins else 1

    # Rows and columns past the end are summed too, from whatever shared memory holds: a guard for
    # each multiply-add would keep loads from being shared. The store is guarded.
    rows, y, i = sch.split(row, factors=[None, threads, own], disable_predication=True)
    columns, x, j = sch.split(column, factors=[None, threads, own], disable_predication=True)
    grid = [*(loops[i] for i in batch), rows, columns]
    if parts == 1:
        step, k = sch.split(summed, factors=[None, _STEP])
        sch.reorder(*grid, y, x, step, k, i, j)
        _bind(sch, grid, y, x)
        sch.reverse_compute_at(final, x)
        _tiled(sch, reduce, step, (1, threads, threads))
        _finish(sch, final, x, vector)
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
    x = _add(sch, reduce, final, block, own, threads)
    _finish(sch, final, x, vector)


def _tile(batch: int, rows: int, columns: int) -> tuple[int, int]:
    """Choose the largest tile that fits into the result and leaves enough blocks, or the smallest.

    Of a tile larger than the result, TVM would allocate only the part inside in shared memory,
    while the sums read all of it.
    """
    for threads, own in _TILES:
        size = threads * own
        if size <= min(rows, columns) and batch * -(-rows // size) * -(-columns // size) >= _BLOCKS:
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
    computed = {sch.get(made).writes[0].source: made for made in sch.get_producers(block)}
    for index, region in enumerate(sch.get(block).reads):
        copy = computed.get(region.source)
        if copy is None:
            copy = sch.cache_read(block, index, "shared", [block])
        else:
            sch.set_scope(copy, 0, "shared")
        sch.compute_at(copy, step)
        _load_together(sch, copy, step, threads)
        _spread_rows(sch, copy)
    for loop in sch.get_loops(block)[-3:]:
        sch.unroll(loop)
    sch.decompose_reduction(block, step)
    sch.annotate(step, "pragma_loop_partition_hint", True)  # the last step alone is guarded


def _load_together(
    sch: s_tir.Schedule, copy: SBlockRV, step: LoopRV, threads: tuple[int, int, int]
) -> None:
    """Spread a copy over all threads of a block, in the widest vectors."""
    *_, last = loops_below(sch, copy, step)
    block = sch.get(copy)
    width = vector_width(_run(block, int(sch.get(last).extent)), block.writes[0].source.dtype)
    _, vector = sch.split(last, factors=[None, width])
    together = sch.fuse(*loops_below(sch, copy, step)[:-1])
    turn, *own = sch.split(together, factors=[None, *threads])
    sch.unroll(turn)
    for loop, axis in zip(own, "zyx", strict=True):
        sch.bind(loop, f"threadIdx.{axis}")
    sch.vectorize(vector)


def _spread_rows(sch: s_tir.Schedule, copy: SBlockRV) -> None:
    """Place the rows of a tile a vector further apart than need be, so that threads which read
    several of them at once find them in different banks of shared memory."""
    buffer = sch.get(copy).writes[0].source
    sch.storage_align(copy, 0, -2, _STEP, _VECTOR_BYTES // DTYPE_BYTES[str(buffer.dtype)])


def _run(block: s_tir.SBlock, extent: int) -> int:
    """Elements next to each other that a copy may load and store at once, of ``extent``."""
    load, last = loads_of(block)[0], block.iter_vars[-1].var
    if not isinstance(block.body.value, tvm.ir.TensorLoad) or not contiguous_in(load, last):
        return 1
    return math.gcd(extent, alignment(load, last))


def _add(
    sch: s_tir.Schedule,
    reduce: SBlockRV,
    final: SBlockRV,
    block: LoopRV,
    own: int,
    threads: int,
) -> LoopRV:
    """Add the parts of each result, by each ``threadIdx.z`` alike; return the loop of threads."""
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
    return x


def _finish(sch: s_tir.Schedule, final: SBlockRV, thread: LoopRV, own: int) -> None:
    """Store a thread's results, as vectors of ``own`` if rows are contiguous."""
    if own == 1:
        return
    *_, last = loops_below(sch, final, thread)
    written = sch.get(final).writes[0].source
    whole = int(sch.get(last).extent) == own and int(written.shape[-1]) % own == 0
    finish_output(sch, final, thread, own if whole else 1)

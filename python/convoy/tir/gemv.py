"""Products of a matrix and a few rows (classifiers, squeeze-and-excitation, all of one image).

No tensor core helps: the matrix is read once. Neighbouring threads load neighbouring vectors of a
row of the matrix, a group of them for each result, and their sums meet in shared memory.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import SBlockRV

from .loads import contiguous_in, depends_on, loads_of, stage_reads, vector_width
from .window import ReductionRule, inline_consumers

_MOST_RESULTS = 65536  # more of them share their loads better with a thread for each
_SHORTEST = 16
_LANES = 32
_THREADS = 128
_BLOCKS = 264  # two for each SM of an H200
_UNROLLED = 16


class Gemv(ReductionRule):
    """One sum of products of two operands, both contiguous along the summed axis."""

    def schedule(self, sch: s_tir.Schedule, infos: list[SBlockInfo], reduction: SBlockInfo) -> bool:
        for info in infos[: infos.index(reduction)]:
            sch.compute_inline(info.block_rv)
        if not _is_gemv(sch, reduction):
            return False
        _schedule(sch, reduction, inline_consumers(sch, infos, reduction))
        return True


def _is_gemv(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    block = sch.get(info.block_rv)
    loads = loads_of(block)
    summed = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    results = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
    if len(loads) != 2 or len(summed) != 1 or any(ld.guarded or not ld.uniform for ld in loads):
        return False
    if not all(contiguous_in(load, summed[0].var) for load in loads):
        return False
    if int(summed[0].dom.extent) < _SHORTEST:
        return False
    of_matrix = [
        any(depends_on(index, results[-1].var) for index in load.indices[:-1]) for load in loads
    ]
    few = math.prod(int(a.dom.extent) for a in results) <= _MOST_RESULTS
    return few and sorted(of_matrix) == [False, True]


def _schedule(sch: s_tir.Schedule, info: SBlockInfo, final: SBlockRV | None) -> None:
    reduce, kinds = info.block_rv, info.dom_kind()
    loops = sch.get_loops(reduce)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    (row,) = (loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R")
    sizes = [vector_width(8, load.buffer.dtype) for load in loads_of(sch.get(reduce))]
    lanes, width = _split(int(sch.get(row).extent), min(sizes))
    results = math.prod(int(sch.get(loop).extent) for loop in spatial)
    sch.reorder(*spatial, row)
    step, lane, vector = sch.split(row, factors=[None, lanes, width])
    sch.reorder(step, vector, lane)
    partial = sch.rfactor(lane, factor_axis=0)

    # First step: each thread sums its vectors of a row in a register.
    *outer, step, vector, lane = sch.get_loops(partial)
    result = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    grid, own = sch.split(result, factors=[None, _results_of_a_block(results, lanes)])
    sch.reorder(grid, own, lane, step, vector)
    sch.bind(grid, "blockIdx.x")
    sch.bind(own, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    shared = sch.cache_write(partial, 0, "local")
    sch.set_scope(shared, 0, "shared")
    sch.reverse_compute_at(shared, lane)
    sch.unroll(vector)
    if int(sch.get(step).extent) <= _UNROLLED:
        sch.unroll(step)
    stage_reads(sch, partial, step, 1, width)
    sch.decompose_reduction(partial, step)

    # Second step: the sums of a row are added by all its threads alike.
    if final is None:
        final = sch.cache_write(reduce, 0, "local")
    else:
        sch.set_scope(reduce, 0, "local")
    sch.reverse_compute_at(reduce, own)
    parts = sch.get_loops(reduce)[-1]
    sch.unroll(parts)
    sch.reverse_compute_at(final, own)
    sch.decompose_reduction(reduce, parts)


def _split(length: int, most: int) -> tuple[int, int]:
    """Threads and the width of their vectors that together take most of a row in one step without
    a rest; of several such the widest vectors."""
    options = [
        (lanes * width, width, lanes)
        for width in (1, 2, 4, 8)
        for lanes in (1, 2, 4, 8, 16, _LANES)
        if width <= most and length % (lanes * width) == 0
    ]
    _, width, lanes = max(options)
    return lanes, width


def _results_of_a_block(results: int, lanes: int) -> int:
    """Whole warps, and more of them where there are enough blocks."""
    own = max(1, _LANES // lanes)
    while results // (2 * own) >= _BLOCKS and 2 * own * lanes <= _THREADS:
        own *= 2
    return math.gcd(results, own)

"""Products of a matrix and a few rows (classifiers, squeeze-and-excitation, batch size 1).

Tensor cores do not help, since the matrix is read once. A group of threads computes each result:
neighbouring threads load neighbouring vectors of a row of the matrix.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo
from tvm.s_tir.schedule import LoopRV

from .loads import contiguous_in, depends_on, loads_of, stage_reads, vector_width
from .partial_sums import PartialSums, fused, loops_of, share

_MOST_RESULTS = 65536  # more of them share their loads better with a thread for each
_SHORTEST = 16
_LANES = 32
FEWEST_LANES = 4  # threads that share a sum
_THREADS = 128
_BLOCKS = 264  # two for each SM of an H200
_UNROLLED = 16


class Gemv(PartialSums):
    """One sum of products of two operands, both contiguous along the summed axis."""

    def fits(self, block: s_tir.SBlock) -> bool:
        loads = loads_of(block)
        summed = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
        results = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar]
        if len(loads) != 2 or len(summed) != 1 or any(ld.guarded or not ld.uniform for ld in loads):
            return False
        if not all(contiguous_in(load, summed[0].var) for load in loads):
            return False
        length = int(summed[0].dom.extent)
        if length < _SHORTEST or length % FEWEST_LANES:
            return False
        of_matrix = [
            any(depends_on(index, results[-1].var) for index in load.indices[:-1]) for load in loads
        ]
        few = math.prod(int(a.dom.extent) for a in results) <= _MOST_RESULTS
        return few and sorted(of_matrix) == [False, True]

    def split(self, sch: s_tir.Schedule, reduction: SBlockInfo) -> LoopRV:
        spatial, (row,) = loops_of(sch, reduction)
        widths = [vector_width(8, ld.buffer.dtype) for ld in loads_of(sch.get(reduction.block_rv))]
        lanes, width = _lanes_and_width(int(sch.get(row).extent), min(widths))
        results = math.prod(int(sch.get(loop).extent) for loop in spatial)
        sch.reorder(*spatial, row)
        step, lane, vector = sch.split(row, factors=[None, lanes, width])
        sch.reorder(step, vector, lane)
        partial = sch.rfactor(lane, factor_axis=0)

        *outer, step, vector, lane = sch.get_loops(partial)
        own = _results_of_a_block(results, lanes)
        grid, result = sch.split(fused(sch, outer), factors=[None, own])
        sch.reorder(grid, result, lane, step, vector)
        sch.bind(grid, "blockIdx.x")
        sch.bind(result, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        share(sch, partial, lane)
        sch.unroll(vector)
        if int(sch.get(step).extent) <= _UNROLLED:
            sch.unroll(step)
        stage_reads(sch, partial, step, 1, width)
        sch.decompose_reduction(partial, step)
        return result


def _lanes_and_width(length: int, most: int) -> tuple[int, int]:
    """Choose the threads of a row and the width of their vectors: as many elements in one step as
    divide the row, in the widest vectors that leave several threads."""
    options = [
        (lanes * width, width, lanes)
        for width in (1, 2, 4, 8)
        for lanes in (FEWEST_LANES, 8, 16, _LANES)
        if width <= most and length % (lanes * width) == 0
    ]
    _, width, lanes = max(options)
    return lanes, width


def _results_of_a_block(results: int, lanes: int) -> int:
    """Fill warps, and use several where the blocks still fill a GPU."""
    own = max(1, _LANES // lanes)
    while results // (2 * own) >= _BLOCKS and 2 * own * lanes <= _THREADS:
        own *= 2
    return math.gcd(results, own)

"""Products of a matrix and a few rows (classifiers, squeeze-and-excitation, batch size 1).

Tensor cores do not help, since the matrix is read once. A group of threads computes each result:
neighbouring threads load neighbouring vectors of a row of the matrix.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from .loads import contiguous_in, depends_on, loads_of, vector_width
from .partial_sums import PartialSums, Shares

_MOST_RESULTS = 65536  # more of them share their loads better with a thread for each
_SHORTEST = 16
_LANES, _MOST_LANES = 32, 64
FEWEST_LANES = 4  # threads that share a sum
_THREADS = 128
_BLOCKS = 264  # two for each SM of an H200


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

    def shares(self, block: s_tir.SBlock, results: int, length: int) -> Shares:
        widest = min(vector_width(8, load.buffer.dtype) for load in loads_of(block))
        lanes, width = _lanes_and_width(length, widest)
        return Shares(lanes, width, _results_of_a_block(results, lanes))


def _lanes_and_width(length: int, most: int) -> tuple[int, int]:
    """Choose the threads of a row and the width of their vectors: the widest vectors that leave
    several threads, of which about a warp share a row. As many threads as divide the vectors where
    such a number is near: a load that may lie behind the last is a branch, for which those behind
    it wait."""
    width = most
    while length % width or length // width < FEWEST_LANES:
        width //= 2
    vectors = length // width
    if vectors <= _LANES:
        return vectors, width
    near = (*range(_LANES, _LANES // 2, -1), *range(_LANES + 1, _MOST_LANES + 1))
    return next((n for n in near if vectors % n == 0), _LANES), width


def _results_of_a_block(results: int, lanes: int) -> int:
    """Fill warps, and use several where the blocks still fill a GPU; a divisor of the results."""
    wanted, most = math.ceil(_LANES / lanes), _THREADS // lanes
    while results // (2 * wanted) >= _BLOCKS and 2 * wanted <= most:
        wanted *= 2
    near = (*range(wanted, most + 1), *range(wanted, 0, -1))
    return next(n for n in near if results % n == 0)

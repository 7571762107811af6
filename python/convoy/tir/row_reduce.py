"""Reductions to results that are too few for one thread each to fill a GPU (the gradient of a
softmax, lengths of vectors, sums over the rows of few channels), or that run along memory: a group
of threads for each result.

Of a row in memory, neighbouring threads load neighbouring vectors.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from .loads import Load, contiguous_in, loads_of, vector_width
from .partial_sums import PartialSums, Shares

_FEW = 16384  # results; more of them fill a GPU with one thread each
_LONGEST_ALONE = 1 << 14  # elements of a single result; more need more than one block
_SHORTEST = 128
_NARROW = 8  # elements next to each other, from which on a thread loads several of them
_LANES, _MOST_LANES = 32, 256  # threads of a result
_THREADS = 128  # of a block, if there are many results
_RESIDENT = 1 << 16  # threads that keep a GPU busy
_SHORT_SHARE = 4  # steps of a thread, from which on more threads are worth their sums


class RowReduce(PartialSums):
    """One reduction over operands that are read once, or few times. Sums over rows of channels, and
    products, that have a schedule of their own are taken by its rule before."""

    def fits(self, block: s_tir.SBlock) -> bool:
        loads = loads_of(block)
        if not loads or not all(load.uniform and not load.guarded for load in loads):
            return False
        reduced, results = (_axes(block, kind) for kind in _KINDS)
        count, length = (math.prod(int(a.dom.extent) for a in axes) for axes in (results, reduced))
        if length < _SHORTEST or (count == 1 and length > _LONGEST_ALONE):
            return False
        largest = max(loads, key=lambda load: math.prod(map(int, load.buffer.shape)))
        is_row = contiguous_in(largest, reduced[-1].var)
        if count > _FEW:
            return is_row and all(largest.along(axis.var) for axis in results)
        return is_row or _is_narrow(largest, results)

    def shares(self, block: s_tir.SBlock, results: int, length: int) -> Shares:
        width = _width(block, length)
        lanes = _lanes(results, length // width)
        own = math.gcd(results, max(1, _THREADS // lanes)) if results > _FEW else 1
        return Shares(lanes, width, own)


_KINDS = (tirx.IterVar.CommReduce, tirx.IterVar.DataPar)


def _axes(block: s_tir.SBlock, kind: int) -> list[tirx.IterVar]:
    """Axes of a kind, without those of one element."""
    axes = [axis for axis in block.iter_vars if axis.iter_type == kind]
    return [axis for axis in axes if int(axis.dom.extent) > 1]


def _is_narrow(load: Load, results: list[tirx.IterVar]) -> bool:
    """Whether too few elements next to each other belong to different results for a thread to load
    several of them."""
    along = [int(a.dom.extent) for a in results if contiguous_in(load, a.var)]
    return not along or along[0] < _NARROW


def _width(block: s_tir.SBlock, length: int) -> int:
    """Elements that a thread loads at once: of rows in memory, along a single axis."""
    loads, reduced = loads_of(block), _axes(block, tirx.IterVar.CommReduce)
    if len(reduced) > 1 or not any(contiguous_in(load, reduced[0].var) for load in loads):
        return 1
    return min(vector_width(length, load.buffer.dtype) for load in loads)


def _lanes(results: int, vectors: int) -> int:
    """Threads of a result: more of a longer one, while a GPU has room for them. A divisor of its
    vectors where one is near: a load that may lie behind the last is a branch, for which those
    behind it wait."""
    wanted = _LANES
    while wanted < _MOST_LANES and results * wanted < _RESIDENT and vectors > wanted * _SHORT_SHARE:
        wanted *= 2
    return next((n for n in range(wanted, wanted // 2, -1) if vectors % n == 0), wanted)

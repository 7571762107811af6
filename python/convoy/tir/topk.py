"""GPU kernels for the largest or smallest elements of rows.

A block sorts a tile of a row in shared memory by Batcher's bitonic network (AFIPS 1968) and keeps
its first elements; the next kernel does the same with what the tiles of a row have kept, until one
tile is left. TVM sorts complete rows, in a launch for each doubling of their sorted parts.

The first k elements of a long row lie in the k groups of neighbours whose first elements come
first, so that the others need not be sorted.

Of equal elements that with the smaller index comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .block_sums import threads, turns
from .builder import KERNEL, when

#: Elements of a tile at least where rows are longer, and at most: 32 KB of keys and places.
_TILE, _MOST_TILE = 1024, 4096
#: Threads of a block: with short rows several rows share one.
_THREADS, _MOST_THREADS = 128, 1024
#: Tiles keep at most a fourth of their elements, so that few kernels are enough.
_SHARE = 4
#: Most elements that are kept of a row.
MOST = _MOST_TILE // _SHARE
#: Elements of a group, the largest that divides a row, and how many more groups than kept elements
#: are worth a reduction.
_GROUPS, _MANY_GROUPS = (64, 32, 16), 16
#: The place of an element behind the end of a row.
_NOWHERE = (1 << 31) - 1


@dataclass(frozen=True)
class TopK:
    """The first ``k`` of ``size`` elements of each of ``rows`` rows of one dtype, in descending
    order or, of the smallest, in ascending order."""

    rows: int
    size: int
    k: int
    dtype: str
    largest: bool

    @property
    def tile(self) -> int:
        """Elements that a block sorts, a power of two."""
        wanted = max(_TILE, _SHARE * _power_of_two(self.k))
        return max(2, min(_power_of_two(self.size), wanted))

    @property
    def tiles(self) -> int:
        """Tiles of a row."""
        return -(-self.size // self.tile)

    @property
    def kept(self) -> int:
        """Elements that all tiles of a row keep."""
        return self.tiles * self.k

    @property
    def group(self) -> int:
        """Elements of a group of which the first elements are found first; 0 for a row that is too
        short for that, or has none."""
        whole = (n for n in _GROUPS if self.size % n == 0)
        return next((n for n in whole if self.size // n >= max(_MANY_GROUPS * self.k, _TILE)), 0)

    @property
    def own_rows(self) -> int:
        """Rows of a block."""
        return max(1, min(self.rows, _THREADS // (self.tile // 2)))

    @property
    def threads(self) -> int:
        return min(_MOST_THREADS, self.own_rows * self.tile // 2)

    def steps(self) -> Iterator[TopK]:
        """The kernels, each of what the one before has kept."""
        step = self
        while step.tiles > 1:
            yield step
            step = replace(step, size=step.kept)
        yield step

    def before(self, one: tuple[Expr, Expr], other: tuple[Expr, Expr]) -> Expr:
        """Whether one (key, place) comes before another one."""
        (a, i), (b, j) = one, other
        return tirx.any(a > b if self.largest else a < b, tirx.all(a == b, i < j))


@dataclass(frozen=True)
class Source:
    """Where the elements of a row are: keys (rows, ``size``) themselves; with ``placed`` they have
    places beside them (rows, size); with a ``group`` of so many, of groups with places (rows, k)
    those elements."""

    size: int
    placed: bool = False
    group: int = 0

    def read(
        self, data: tirx.Buffer, places: tirx.Buffer | None, row: Expr, at: Expr
    ) -> tuple[Expr, Expr]:
        """(key, place) of an element."""
        if places is None:
            return data[row, at], at
        if not self.group:
            return data[row, at], places[row, at]
        place = places[row, at // self.group] * self.group + at % self.group
        return data[row, place], place


def topk_kernel(step: TopK, source: Source, place_dtype: str) -> tirx.PrimFunc:
    """(keys (rows, size), places if the source has any, keys that are kept (rows, kept), their
    places of a dtype)."""
    tile, own, count = step.tile, step.own_rows, step.threads
    end = tirx.min_value(step.dtype) if step.largest else tirx.max_value(step.dtype)
    if "float" in step.dtype:
        end = tirx.const(-math.inf if step.largest else math.inf, step.dtype)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("topk")
            T.func_attr(KERNEL)
            data = T.arg("keys", T.buffer((step.rows, source.size), step.dtype))
            given: tirx.Buffer | None = None
            if source.placed or source.group:
                count_of = step.size // max(1, source.group)
                given = T.arg("places", T.buffer((step.rows, count_of), "int32"))
            out = T.arg("kept", T.buffer((step.rows, step.kept), step.dtype))
            places = T.arg("kept_places", T.buffer((step.rows, step.kept), place_dtype))
            keys = T.sblock_alloc_buffer((own, tile), step.dtype, scope="shared")
            found = T.sblock_alloc_buffer((own, tile), "int32", scope="shared")
            held = T.sblock_alloc_buffer((2,), step.dtype, scope="local")
            held_places = T.sblock_alloc_buffer((2,), "int32", scope="local")
            with (
                T.thread_binding(0, -(-step.rows // own), thread="blockIdx.y") as group,
                T.thread_binding(0, step.tiles, thread="blockIdx.x") as number,
            ):
                with threads(count) as thread:
                    for at in turns(thread, own * tile, count):
                        row, place = at // tile, at % tile
                        whole, element = group * own + row, number * tile + place
                        T.buffer_store(keys, end, [row, place])
                        T.buffer_store(found, tirx.const(_NOWHERE, "int32"), [row, place])
                        with when(tirx.all(whole < step.rows, element < step.size)):
                            key, index = source.read(data, given, whole, element)
                            T.buffer_store(keys, key, [row, place])
                            T.buffer_store(found, index, [row, place])
                for size, stride in _network(tile):
                    with threads(count) as thread:
                        for at in turns(thread, own * tile // 2, count):
                            row, pair = at // (tile // 2), at % (tile // 2)
                            low = pair // stride * (2 * stride) + pair % stride
                            for which, place in enumerate((low, low + stride)):
                                T.buffer_store(held, keys[row, place], [which])
                                T.buffer_store(held_places, found[row, place], [which])
                            both = [(held[which], held_places[which]) for which in range(2)]
                            falls = low // size % 2 == 0  # the first elements come first
                            swaps = tirx.any(
                                tirx.all(falls, step.before(both[1], both[0])),
                                tirx.all(tirx.Not(falls), step.before(both[0], both[1])),
                            )
                            with when(swaps):
                                for which, place in enumerate((low + stride, low)):
                                    T.buffer_store(keys, held[which], [row, place])
                                    T.buffer_store(found, held_places[which], [row, place])
                with threads(count) as thread:
                    for at in turns(thread, own * step.k, count):
                        row, place = at // step.k, at % step.k
                        whole, target = group * own + row, number * step.k + place
                        with when(whole < step.rows, step.rows % own > 0):
                            T.buffer_store(out, keys[row, place], [whole, target])
                            index = found[row, place].astype(place_dtype)
                            T.buffer_store(places, index, [whole, target])
        return builder.get()


def _network(tile: int) -> Iterator[tuple[int, int]]:
    """(size of sorted parts, distance of the elements that are compared) of each step."""
    size = 2
    while size <= tile:
        stride = size // 2
        while stride:
            yield size, stride
            stride //= 2
        size *= 2


def _power_of_two(number: int) -> int:
    """The smallest power of two that is no smaller."""
    return 1 << (number - 1).bit_length()

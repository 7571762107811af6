"""GPU kernels for the largest or smallest elements of rows.

A block sorts runs of a tile of a row in shared memory by Batcher's bitonic network (AFIPS 1968), no
longer than what is kept, and then halves their number, keeping the first elements of each two; the
next kernel does the same with what the tiles of a row have kept, until one tile is left. TVM sorts
complete rows, in a launch for each doubling of their sorted parts.

Of a row of which more is kept, all elements of its sorted tiles are ranked: by their places in
their own tiles, and how many elements of each other tile come first.

The first k elements of a long row lie in the k groups of neighbours whose first elements come
first, so that the others need not be sorted.

Of equal elements that with the smaller index comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .block_sums import threads
from .builder import KERNEL, when
from .float_order import float_of, ordered_bits

#: Elements of a tile at least where rows are longer, and at most: 32 KB of keys and places.
_TILE, _MOST_TILE = 1024, 4096
#: Threads of a block: with short rows several rows share one.
_THREADS, _MOST_THREADS = 128, 1024
#: Pairs of a thread where there are blocks enough for all SMs, and tiles of so many elements:
#: barriers of few warps cost less.
_PAIRS, _MANY_BLOCKS, _LARGE_TILE = 16, 512, 128
#: Threads of a block that ranks elements.
_MERGING = 256
#: Tiles keep at most a fourth of their elements, so that few kernels are enough.
_SHARE = 4
#: Most elements that tiles of a row keep if it has several.
MOST = _MOST_TILE // _SHARE
#: The longest row that is sorted in one tile, and the longest one whose sorted tiles are merged.
LONGEST_TILE, LONGEST = _MOST_TILE, 64 * _MOST_TILE
#: Elements of a group, the largest that divides a row, and how many more groups than kept elements
#: are worth a reduction.
_GROUPS, _MANY_GROUPS = (64, 32, 16), 16
#: The largest place of an element.
_LAST = (1 << 31) - 1


@dataclass(frozen=True)
class TopK:
    """The first ``k`` of ``size`` elements of each of ``rows`` rows of float32 or int32, in
    descending order or, of the smallest, in ascending order."""

    rows: int
    size: int
    k: int
    dtype: str
    largest: bool

    @property
    def tile(self) -> int:
        """Elements that a block sorts, a power of two."""
        wanted = max(_TILE, _SHARE * _power_of_two(self.k))
        return max(2, min(_power_of_two(self.size), wanted, _MOST_TILE))

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
        """Rows of a block, a power of two."""
        most = max(1, min(self.rows, _THREADS // (self.tile // 2)))
        return _power_of_two(most + 1) // 2

    @property
    def threads(self) -> int:
        pairs, blocks = self.own_rows * self.tile // 2, self.rows * self.tiles // self.own_rows
        if blocks >= _MANY_BLOCKS and self.tile >= _LARGE_TILE:
            return min(_MOST_THREADS, pairs, max(32, pairs // _PAIRS))
        return min(_MOST_THREADS, pairs)

    @property
    def run(self) -> int:
        """Elements of a sorted run, a power of two: with pairs for all threads."""
        return min(self.tile, max(_power_of_two(self.k), 2 * self.threads // self.own_rows))

    def steps(self) -> Iterator[TopK]:
        """The kernels, each of what the one before has kept."""
        step = self
        while step.tiles > 1:
            yield step
            step = replace(step, size=step.kept)
        yield step

    def packed(self, key: Expr, place: Expr) -> Expr:
        """An int64 that is the larger the earlier an element comes: its key in the upper half."""
        if self.dtype == "float32":
            key = ordered_bits(tirx.Select(key == 0, tirx.const(0.0, "float32"), key))
        key = key if self.largest else -1 - key
        return (key.astype("int64") << 32) | (_LAST - place).astype("int64")

    def unpacked(self, value: Expr) -> tuple[Expr, Expr]:
        """(key, place) of an element."""
        key = (value >> 32).astype("int32")
        key = key if self.largest else -1 - key
        if self.dtype == "float32":
            key = float_of(key)
        return key, _LAST - (value & _LAST).astype("int32")


def topk_kernel(step: TopK, size: int, groups: bool, packed: bool, last: bool) -> tirx.PrimFunc:
    """The kernel of a step, whose parameters are what it reads and what it writes.

    Args:
        step: The step.
        size: Elements of a row that is read: more than the step's if it is of ``groups``.
        groups: Whether only some groups of each row take part, as many as ``step`` keeps elements,
            whose numbers (rows, k) follow the keys.
        packed: Whether the elements are those that a step before kept, int64 (rows, size).
        last: Whether keys and places (rows, k) are written, the latter as int64, not elements
            (rows, kept).
    """
    tile, own, count = step.tile, step.own_rows, step.threads
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("topk")
            T.func_attr(KERNEL)
            dtype = "int64" if packed else step.dtype
            data = T.arg("keys", T.buffer((step.rows, size), dtype))
            group = step.size // step.k
            chosen = T.arg("groups", T.buffer((step.rows, step.k), "int64")) if groups else None
            dtypes = [step.dtype, "int64"] if last else ["int64"]
            outs = [
                T.arg(f"out{i}", T.buffer((step.rows, step.kept), d)) for i, d in enumerate(dtypes)
            ]
            shared = T.sblock_alloc_buffer((own, tile), "int64", scope="shared")
            pair = T.sblock_alloc_buffer((2,), "int64", scope="local")
            with (
                T.thread_binding(0, -(-step.rows // own), thread="blockIdx.x") as block,
                T.thread_binding(0, step.tiles, thread="blockIdx.y") as number,
            ):
                with _each(own * tile, count) as at:
                    row, place = at // tile, at % tile
                    whole, element = block * own + row, number * tile + place
                    T.buffer_store(shared, tirx.min_value("int64"), [row, place])
                    with when(tirx.all(whole < step.rows, element < step.size)):
                        if chosen is not None:
                            first = chosen[whole, element // group].astype("int32") * group
                            element = first + element % group
                        found = data[whole, element]
                        value = found if packed else step.packed(found, element)
                        T.buffer_store(shared, value, [row, place])
                for compared in _network(step.run, tile):
                    with _each(own * compared.pairs, count) as at:
                        row, low, falls = compared.pair(at)
                        places = (low, low + compared.distance)
                        for which, place in enumerate(places):
                            T.buffer_store(pair, shared[row, place], [which])
                        extremes = [f(pair[0], pair[1]) for f in (tirx.max, tirx.min)]
                        for which, place in enumerate(places):
                            value = tirx.Select(falls, extremes[which], extremes[1 - which])
                            T.buffer_store(shared, value, [row, place])
                with _each(own * step.k, count) as at:
                    row, place = at // step.k, at % step.k
                    whole, target = block * own + row, number * step.k + place
                    with when(whole < step.rows, step.rows % own > 0):
                        value = shared[row, place]
                        for out, result in zip(
                            outs, step.unpacked(value) if last else [value], strict=True
                        ):
                            T.buffer_store(out, result.astype(out.dtype), [whole, target])
        return builder.get()


def merge_kernel(step: TopK, k: int) -> tirx.PrimFunc:
    """(what a step that keeps whole tiles has written (rows, kept), keys (rows, k), places)."""
    nothing, tile = tirx.min_value("int64"), step.tile
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("merge")
            T.func_attr(KERNEL)
            tiles = T.arg("tiles", T.buffer((step.rows, step.kept), "int64"))
            dtypes = (step.dtype, "int64")
            outs = [T.arg(f"out{i}", T.buffer((step.rows, k), d)) for i, d in enumerate(dtypes)]
            rank = T.sblock_alloc_buffer((1,), "int32", scope="local")
            first = T.sblock_alloc_buffer((1,), "int32", scope="local")
            with (
                T.thread_binding(0, step.rows, thread="blockIdx.x") as row,
                T.thread_binding(0, step.kept // _MERGING, thread="blockIdx.y") as block,
                T.thread_binding(0, _MERGING, thread="threadIdx.x") as thread,
            ):
                place = block * _MERGING + thread
                value = tiles[row, place]
                T.buffer_store(rank, place % tile, [0])
                with T.serial(0, step.tiles) as other, when(other != place // tile):
                    # How many elements of the other tile come first: a power of two at a time.
                    T.buffer_store(first, 0, [0])
                    for bit in reversed(range(tile.bit_length())):
                        more = first[0] + (1 << bit)
                        reached = tiles[row, other * tile + tirx.min(more, tile) - 1]
                        with when(tirx.all(more <= tile, reached > value)):
                            T.buffer_store(first, more, [0])
                    T.buffer_store(rank, rank[0] + first[0], [0])
                with when(tirx.all(rank[0] < k, value > nothing)):
                    for out, result in zip(outs, step.unpacked(value), strict=True):
                        T.buffer_store(out, result.astype(out.dtype), [row, rank[0]])
        return builder.get()


@contextmanager
def _each(size: int, block: int) -> Iterator[Expr]:
    """The positions below ``size``, which the ``block`` threads of a block share."""
    with threads(block) as thread:
        if size <= block:
            with when(thread < size, size < block):
                yield thread
        else:
            with T.serial(0, -(-size // block)) as turn:
                at = turn * block + thread
                with when(at < size, size % block > 0):
                    yield at


@dataclass(frozen=True)
class _Step:
    """A step of a network: pairs of elements of a tile that are put in order.

    Attributes:
        pairs: Of a tile.
        distance: Between the elements of a pair.
        run: Elements that begin a part of the tile and take part in the step.
        part: Elements of a part.
        alternates: Whether the first elements come last in every second part.
    """

    pairs: int
    distance: int
    run: int
    part: int
    alternates: bool

    def pair(self, at: Expr) -> tuple[Expr, Expr, Expr]:
        """Row, first element and direction of a pair, by its number."""
        row, pair = at // self.pairs, at % self.pairs
        half = self.run // 2
        part, pair = pair // half, pair % half
        within = pair // self.distance * (2 * self.distance) + pair % self.distance
        falls = tirx.any(tirx.const(not self.alternates, "bool"), part % 2 == 0)
        return row, part * self.part + within, falls


def _network(run: int, tile: int) -> Iterator[_Step]:
    """Steps after which the first ``run`` elements of a tile are in order and come first: runs are
    sorted, every second one in rising order, and of each two the first elements are kept."""
    size = 2
    while size <= run:
        yield from _merge(size, size, tile)
        size *= 2
    apart = run
    while apart < tile:
        yield _Step(run * (tile // (2 * apart)), apart, 2 * run, 2 * apart, False)
        apart *= 2
        yield from _merge(run, apart, tile)


def _merge(run: int, apart: int, tile: int) -> Iterator[_Step]:
    """Steps that sort bitonic runs, which begin at multiples of ``apart``."""
    distance = run // 2
    while distance:
        yield _Step(run // 2 * (tile // apart), distance, run, apart, True)
        distance //= 2


def _power_of_two(number: int) -> int:
    """The smallest power of two that is no smaller."""
    return 1 << (number - 1).bit_length()

"""GPU kernels of two sums over rows, as ``channel_sums.py`` lays them out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import IN_PLACE_KERNEL, when
from .channel_sums import (
    ROWS_AT_ONCE,
    ChannelSums,
    Grid,
    grid_of,
    partial_shape,
    power_of_two,
)

_COMBINE_LANES = 8
_ZERO = tirx.const(0.0, "float32")


@functools.lru_cache(maxsize=128)
def kernels(sums: ChannelSums) -> tuple[tirx.PrimFunc, ...]:
    """Return one kernel (activations, vectors, results), or two: (activations, vectors, partial
    sums of shape :func:`partial_shape`) and (first activation, vectors, partial sums, results)."""
    if sums.single:
        return (_whole(sums),)
    return _partial(sums), _combine(sums)


class _Kernel:
    """A kernel under construction: parameters, and blocks of ``lanes`` x ``parts`` threads."""

    def __init__(self, name: str, lanes: int, parts: int) -> None:
        self.lanes, self.parts = lanes, parts
        T.func_name(name)
        T.func_attr(IN_PLACE_KERNEL)

    @contextmanager
    def threads(self) -> Iterator[tuple[Expr, Expr]]:
        """(part, lane); code after a nest of threads sees all of its stores."""
        with (
            T.thread_binding(0, self.parts, thread="threadIdx.y") as part,
            T.thread_binding(0, self.lanes, thread="threadIdx.x") as lane,
        ):
            yield part, lane

    def reduce(self, shared: tirx.Buffer, tile: int) -> None:
        """Add up ``shared`` (2, parts, tile) over the parts, into part 0."""
        stride, count = self.parts // 2, self.parts * self.lanes
        while stride:
            with self.threads() as (part, lane):
                thread, total = part * self.lanes + lane, 2 * stride * tile
                for k in range(-(-total // count)):
                    at = thread + k * count
                    which, rest = at // (stride * tile), at % (stride * tile)
                    row, column = rest // tile, rest % tile
                    with when(at < total, (k + 1) * count > total):
                        value = shared[which, row, column] + shared[which, row + stride, column]
                        T.buffer_store(shared, value, [which, row, column])
            stride //= 2

    def finish(
        self, sums: ChannelSums, shared: tirx.Buffer, tile: int, block: Expr,
        vectors: list[tirx.Buffer], first: _Rows, outputs: list[tirx.Buffer],
    ) -> None:  # fmt: skip
        """Results of the block's ``tile`` channels from part 0 of ``shared``."""
        count = self.parts * self.lanes
        with self.threads() as (part, lane):
            for k in range(-(-tile // count)):
                local = part * self.lanes + lane + k * count
                with when(local < tile, (k + 1) * count > tile):
                    c = block * tile + local
                    totals = [shared[j, 0, local] for j in range(2)]
                    results = sums.finish(
                        totals, [v[c] for v in vectors], first[0, c].astype("float32")
                    )
                    for out, result in zip(outputs, results, strict=True):
                        T.buffer_store(out, result, [c])


class _Rows:
    """Activations by row and channel; those of one channel have no axis for it."""

    def __init__(self, buffer: tirx.Buffer) -> None:
        self._buffer = buffer

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        return self._buffer[at] if len(self._buffer.shape) == 2 else self._buffer[at[0]]


def _vectors(count: int, channels: int, name: str) -> list[tirx.Buffer]:
    return [T.arg(f"{name}{i}", T.buffer((channels,), "float32")) for i in range(count)]


def _inputs(sums: ChannelSums) -> tuple[list[_Rows], list[tirx.Buffer]]:
    data = [_Rows(T.arg(f"x{i}", T.buffer(sums.shape, d))) for i, d in enumerate(sums.data)]
    return data, _vectors(sums.vectors, sums.channels, "v")


def _whole(sums: ChannelSums) -> tirx.PrimFunc:
    grid = grid_of(sums)
    tile = grid.lanes * sums.width
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            kernel = _Kernel(sums.name, grid.lanes, grid.parts)
            data, vectors = _inputs(sums)
            outputs = _vectors(sums.outputs, sums.channels, "out")
            shared = T.sblock_alloc_buffer((2, grid.parts, tile), "float32", scope="shared")
            share = _Accumulator(sums, data, vectors)
            with T.thread_binding(0, sums.channels // tile, thread="blockIdx.x") as block:
                with kernel.threads() as (part, lane):
                    share.emit(grid, shared, block * tile, part, lane, part)
                kernel.reduce(shared, tile)
                kernel.finish(sums, shared, tile, block, vectors, data[0], outputs)
        return builder.get()


def _partial(sums: ChannelSums) -> tirx.PrimFunc:
    grid = grid_of(sums)
    tile = grid.lanes * sums.width
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            kernel = _Kernel(f"{sums.name}_partial", grid.lanes, grid.parts)
            data, vectors = _inputs(sums)
            out = T.arg("partial", T.buffer(partial_shape(sums), "float32"))
            shared = T.sblock_alloc_buffer((2, grid.parts, tile), "float32", scope="shared")
            share = _Accumulator(sums, data, vectors)
            with (
                T.thread_binding(0, sums.channels // tile, thread="blockIdx.x") as block,
                T.thread_binding(0, grid.chunks, thread="blockIdx.y") as chunk,
            ):
                with kernel.threads() as (part, lane):
                    rows = chunk * (grid.steps(sums.rows) * grid.parts)
                    share.emit(grid, shared, block * tile, part, lane, rows + part)
                kernel.reduce(shared, tile)
                count = grid.lanes * grid.parts
                with kernel.threads() as (part, lane):
                    for k in range(-(-2 * tile // count)):
                        at = part * grid.lanes + lane + k * count
                        with when(at < 2 * tile, (k + 1) * count > 2 * tile):
                            which, local = at // tile, at % tile
                            where = [which, chunk, block * tile + local]
                            T.buffer_store(out, shared[which, 0, local], where)
        return builder.get()


def _combine(sums: ChannelSums) -> tirx.PrimFunc:
    chunks = partial_shape(sums)[1]
    lanes = next(n for n in range(_COMBINE_LANES, 0, -1) if sums.channels % n == 0)
    parts = power_of_two(min(512 // lanes, chunks))
    steps = -(-chunks // parts)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            kernel = _Kernel(f"{sums.name}_combine", lanes, parts)
            first = _Rows(T.arg("x0", T.buffer(sums.shape, sums.data[0])))
            vectors = _vectors(sums.vectors, sums.channels, "v")
            partial = T.arg("partial", T.buffer(partial_shape(sums), "float32"))
            outputs = _vectors(sums.outputs, sums.channels, "out")
            shared = T.sblock_alloc_buffer((2, parts, lanes), "float32", scope="shared")
            total = T.sblock_alloc_buffer((2,), "float32", scope="local")
            with T.thread_binding(0, sums.channels // lanes, thread="blockIdx.x") as block:
                with kernel.threads() as (part, lane):
                    for j in range(2):
                        T.buffer_store(total, _ZERO, [j])
                    for k in range(steps):
                        chunk = part + k * parts
                        with when(chunk < chunks, (k + 1) * parts > chunks):
                            for j in range(2):
                                value = total[j] + partial[j, chunk, block * lanes + lane]
                                T.buffer_store(total, value, [j])
                    for j in range(2):
                        T.buffer_store(shared, total[j], [j, part, lane])
                kernel.reduce(shared, lanes)
                kernel.finish(sums, shared, lanes, block, vectors, first, outputs)
        return builder.get()


class _Accumulator:
    """A thread's share of the sums: its rows, added up in registers."""

    def __init__(self, sums: ChannelSums, data: list[_Rows], vectors: list[tirx.Buffer]) -> None:
        def registers(*shape: int, dtype: str = "float32") -> tirx.Buffer:
            return T.sblock_alloc_buffer(shape, dtype, scope="local")

        self._sums, self._data, self._vectors = sums, data, vectors
        self._acc = registers(2, sums.width)
        self._loaded = [registers(ROWS_AT_ONCE, sums.width, dtype=dtype) for dtype in sums.data]
        self._held = [registers(sums.width) for _ in vectors]
        self._first = registers(sums.width, dtype=sums.data[0])

    def emit(
        self, grid: Grid, shared: tirx.Buffer, channel: Expr, part: Expr, lane: Expr,
        first_row: Expr,
    ) -> None:  # fmt: skip
        """Add up every ``grid.parts``-th row from ``first_row`` on and store to ``shared``."""
        sums = self._sums
        at = channel + lane * sums.width
        self._start(at)
        full, rest = divmod(grid.steps(sums.rows), ROWS_AT_ONCE)
        if full:
            with T.serial(0, full) as step:
                self._add(grid, first_row, step * ROWS_AT_ONCE, ROWS_AT_ONCE, at)
        if rest:
            self._add(grid, first_row, full * ROWS_AT_ONCE, rest, at)
        for j in range(2):
            for i in range(sums.width):
                T.buffer_store(shared, self._acc[j, i], [j, part, lane * sums.width + i])

    def _start(self, at: Expr) -> None:
        """Load what all rows share, and set the sums to zero."""
        width = self._sums.width
        for buffer, source in zip(self._held, self._vectors, strict=True):
            for i in range(width):
                T.buffer_store(buffer, source[at + i], [i])
        if self._sums.uses_first:
            with T.vectorized(0, width) as i:
                T.buffer_store(self._first, self._data[0][0, at + i], [i])
        for i in range(width):
            for j in range(2):
                T.buffer_store(self._acc, _ZERO, [j, i])

    def _add(self, grid: Grid, first_row: Expr, step: Expr, count: int, at: Expr) -> None:
        """Load the rows of ``count`` steps, all before the first is used, and add their terms."""
        sums = self._sums
        uneven = grid.steps(sums.rows) * grid.parts * grid.chunks != sums.rows
        rows = [first_row + (step + u) * grid.parts for u in range(count)]
        for u, r in enumerate(rows):
            with when(r < sums.rows, uneven):
                for buffer, source in zip(self._loaded, self._data, strict=True):
                    with T.vectorized(0, sums.width) as i:
                        T.buffer_store(buffer, source[r, at + i], [u, i])
        for u, r in enumerate(rows):
            with when(r < sums.rows, uneven):
                for i in range(sums.width):
                    values = [buffer[u, i].astype("float32") for buffer in self._loaded]
                    first = self._first[i].astype("float32") if sums.uses_first else _ZERO
                    terms = sums.terms(values, [v[i] for v in self._held], first)
                    for j, term in enumerate(terms):
                        T.buffer_store(self._acc, self._acc[j, i] + term, [j, i])

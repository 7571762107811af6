"""GPU kernels of norms over the last axis: layer norm, RMS norm, softmax.

A block takes some rows, a few threads for each. The elements of a row are read once, 16 bytes a
thread, and kept in shared memory in float32; a statistic is the sum (or maximum) of what each
thread of the row found. Mean and variance are taken one after the other, as the difference of large
squares would lose digits. Loops are bound to threads; run serially they compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .loads import vector_width

#: Longest row, in elements: one block keeps it in 48 KB of shared memory.
LONGEST_ROW = 11264
_SMS = 132
_THREADS = 128
_LANES = 32


@dataclass(frozen=True)
class Run:
    """``count`` consecutive rows from element ``offset`` on in every ``pitch`` elements, such as
    the queries of all heads in the result of a GEMM."""

    pitch: int
    offset: int
    count: int


@dataclass(frozen=True)
class RowNorm:
    """A norm of each row of a ``(rows, columns)`` matrix, which may be cut out of a larger one.

    ``kind`` is "layer_norm" (vectors gamma and beta), "rms_norm" (gamma), "softmax" or
    "log_softmax". Vectors are ``(columns,)`` in float32, in which everything is computed.
    """

    kind: str
    rows: int
    columns: int
    dtype: str
    out_dtype: str
    epsilon: float = 0.0
    run: Run | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the data as a matrix."""
        if self.run is None:
            return self.rows, self.columns
        return self.rows // self.run.count, self.run.pitch

    @property
    def vectors(self) -> int:
        return {"layer_norm": 2, "rms_norm": 1}.get(self.kind, 0)

    @property
    def width(self) -> int:
        """Elements that a thread loads at once."""
        starts = (self.run.pitch, self.run.offset) if self.run else ()
        together = math.gcd(self.columns, *starts)
        return min(vector_width(together, d) for d in (self.dtype, self.out_dtype))

    @property
    def lanes(self) -> int:
        """Threads that share a row."""
        groups = self.columns // self.width
        most = min(groups, _LANES if groups <= 8 * _LANES else _THREADS)
        even = max(n for n in range(1, most + 1) if groups % n == 0)
        return even if 2 * even >= most else most

    @property
    def parts(self) -> int:
        """Rows of a block: few where there are not enough blocks otherwise."""
        most = min(_THREADS // self.lanes, LONGEST_ROW // self.columns, self.rows // (2 * _SMS))
        return max(1, most)


def kernel(norm: RowNorm) -> tirx.PrimFunc:
    """Return the kernel of a norm: (data, vectors, result)."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(norm.kind)
            T.func_attr(KERNEL)
            _Kernel(norm).emit()
        return builder.get()


class _Kernel:
    """A kernel under construction, with its parameters and shared memory."""

    def __init__(self, norm: RowNorm) -> None:
        self.norm = norm
        self.data = T.arg("x", T.buffer(norm.shape, norm.dtype))
        self.vectors = [
            T.arg(f"v{i}", T.buffer((norm.columns,), "float32")) for i in range(norm.vectors)
        ]
        self.out = T.arg("y", T.buffer((norm.rows, norm.columns), norm.out_dtype))
        parts, lanes = norm.parts, norm.lanes
        self.row = T.sblock_alloc_buffer((parts, norm.columns), "float32", scope="shared")
        self.found = [
            T.sblock_alloc_buffer((parts, lanes), "float32", scope="shared") for _ in range(2)
        ]
        self.loaded = T.sblock_alloc_buffer((norm.width,), norm.dtype, scope="local")
        self.stored = T.sblock_alloc_buffer((norm.width,), norm.out_dtype, scope="local")
        self.mine = T.sblock_alloc_buffer((1,), "float32", scope="local")
        self.total = T.sblock_alloc_buffer((2,), "float32", scope="local")

    def emit(self) -> None:
        norm = self.norm
        with T.thread_binding(0, -(-norm.rows // norm.parts), thread="blockIdx.x") as block:
            if norm.kind == "layer_norm":
                self._layer_norm(block)
            elif norm.kind == "rms_norm":
                self._rms_norm(block)
            else:
                self._softmax(block, norm.kind == "log_softmax")

    def _layer_norm(self, block: Expr) -> None:
        count, epsilon = float(self.norm.columns), self.norm.epsilon
        with self._threads(block) as at:
            self._load(at, _add, 0.0, 0)
        with self._threads(block) as at:
            mean = self._statistic(at, 0, _add) / count
            self._each(at, lambda s, x: s + (x - mean) * (x - mean), 0.0, 1)
        with self._threads(block) as at:
            mean = self._statistic(at, 0, _add) / count
            variance = self._statistic(at, 1, _add) / count
            scale = tirx.rsqrt(variance + epsilon)
            gamma, beta = self.vectors
            self._store(at, lambda x, c: (x - mean) * scale * gamma[c] + beta[c])

    def _rms_norm(self, block: Expr) -> None:
        with self._threads(block) as at:
            self._load(at, lambda s, x: s + x * x, 0.0, 0)
        with self._threads(block) as at:
            square = self._statistic(at, 0, _add) / float(self.norm.columns)
            scale = tirx.rsqrt(square + self.norm.epsilon)
            self._store(at, lambda x, c: x * scale * self.vectors[0][c])

    def _softmax(self, block: Expr, logarithm: bool) -> None:
        with self._threads(block) as at:
            self._load(at, tirx.max, float("-inf"), 0)
        with self._threads(block) as at:
            largest = self._statistic(at, 0, tirx.max)
            self._each(at, lambda s, x: s + tirx.exp(x - largest), 0.0, 1)
        with self._threads(block) as at:
            largest = self._statistic(at, 0, tirx.max)
            total = self._statistic(at, 1, _add)
            if logarithm:
                self._store(at, lambda x, c: x - largest - tirx.log(total))
            else:
                self._store(at, lambda x, c: tirx.exp(x - largest) / total)

    @contextmanager
    def _threads(self, block: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
        """(row of the matrix, row of the block, lane), of the rows that there are; what follows a
        nest of threads sees all that it stored."""
        norm = self.norm
        with (
            T.thread_binding(0, norm.parts, thread="threadIdx.y") as part,
            T.thread_binding(0, norm.lanes, thread="threadIdx.x") as lane,
        ):
            row = block * norm.parts + part
            with when(row < norm.rows, norm.rows % norm.parts != 0):
                yield row, part, lane

    def _vectors_of(self, lane: Expr) -> Iterator[Expr]:
        """First column of each of a thread's vectors, in a guard where one may be missing."""
        groups = self.norm.columns // self.norm.width
        for k in range(-(-groups // self.norm.lanes)):
            group = lane + k * self.norm.lanes
            with when(group < groups, (k + 1) * self.norm.lanes > groups):
                yield group * self.norm.width

    def _start(self, row: Expr) -> tuple[Expr, Expr]:
        """Return where a row begins in the data."""
        run = self.norm.run
        if run is None:
            return row, 0
        place = tirx.indexmod(row, run.count)
        return tirx.indexdiv(row, run.count), run.offset + place * self.norm.columns

    def _load(
        self, at: tuple[Expr, Expr, Expr], join: Callable[[Expr, Expr], Expr], start: float, to: int
    ) -> None:
        """Keep a thread's elements, and join them to its share of statistic ``to``."""
        row, part, lane = at
        T.buffer_store(self.mine, tirx.const(start, "float32"), [0])
        source, first = self._start(row)
        for column in self._vectors_of(lane):
            with T.vectorized(0, self.norm.width) as i:
                T.buffer_store(self.loaded, self.data[source, first + column + i], [i])
            for i in range(self.norm.width):
                value = self.loaded[i].astype("float32")
                T.buffer_store(self.row, value, [part, column + i])
                T.buffer_store(self.mine, join(self.mine[0], value), [0])
        T.buffer_store(self.found[to], self.mine[0], [part, lane])

    def _each(
        self, at: tuple[Expr, Expr, Expr], join: Callable[[Expr, Expr], Expr], start: float, to: int
    ) -> None:
        """Join a thread's elements to its share of statistic ``to``."""
        _, part, lane = at
        T.buffer_store(self.mine, tirx.const(start, "float32"), [0])
        for column in self._vectors_of(lane):
            for i in range(self.norm.width):
                value = self.row[part, column + i]
                T.buffer_store(self.mine, join(self.mine[0], value), [0])
        T.buffer_store(self.found[to], self.mine[0], [part, lane])

    def _statistic(
        self, at: tuple[Expr, Expr, Expr], which: int, join: Callable[[Expr, Expr], Expr]
    ) -> Expr:
        """Combine the values of all threads of the row; each of them computes the result."""
        _, part, _ = at
        shares: Sequence[Expr] = [self.found[which][part, i] for i in range(self.norm.lanes)]
        T.buffer_store(self.total, shares[0], [which])
        for share in shares[1:]:
            T.buffer_store(self.total, join(self.total[which], share), [which])
        return self.total[which]

    def _store(self, at: tuple[Expr, Expr, Expr], value: Callable[[Expr, Expr], Expr]) -> None:
        """Write ``value(element, column)`` of a thread's elements."""
        row, part, lane = at
        for column in self._vectors_of(lane):
            for i in range(self.norm.width):
                result = value(self.row[part, column + i], column + i)
                T.buffer_store(self.stored, result.astype(self.norm.out_dtype), [i])
            with T.vectorized(0, self.norm.width) as i:
                T.buffer_store(self.out, self.stored[i], [row, column + i])


def _add(a: Expr, b: Expr) -> Expr:
    return a + b

"""GPU kernels of norms over the last axis: layer norm, RMS norm, softmax.

Some threads share a row: a part of a warp, a warp, or several for long rows. A thread reads its
elements once, 16 bytes at a time, and keeps them in registers in float32. A statistic is the sum
(or maximum) of what the threads of the row found: lanes exchange it by shuffles, warps through
shared memory. Mean and variance are taken one after the other, as the difference of large squares
would lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .loads import itemsize, vector_width

#: Elements of a row that one thread keeps in registers, and threads of the longest row.
_MOST_KEPT, _MOST_LANES = 32, 512
#: Longest row, in elements.
LONGEST_ROW = _MOST_KEPT * _MOST_LANES
_SMS = 132
_THREADS = 128
_WARP = 32
#: Fewest bytes that the threads of a row load together, and threads that keep a GPU busy.
_TOGETHER, _BUSY = 64, 256 * _SMS
#: Elements of gamma and beta that are loaded at once.
_VECTOR = 4

_LOWEST = float("-inf")

Join = Callable[[Expr, Expr], Expr]


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
    "log_softmax", of the data times ``factor``. Vectors are ``(columns,)`` in float32, in which
    everything is computed.
    """

    kind: str
    rows: int
    columns: int
    dtype: str
    out_dtype: str
    epsilon: float = 0.0
    run: Run | None = None
    factor: float = 1.0

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
        """Threads that share a row, a power of two; more of them where there are few rows."""
        groups = self.columns // self.width
        least = _TOGETHER // (self.width * itemsize(self.dtype))
        lanes = 1
        while lanes < min(groups, _WARP) and (lanes < least or self.rows * lanes < _BUSY):
            lanes *= 2
        while lanes * _MOST_KEPT < self.columns:
            lanes *= 2
        return lanes

    @property
    def waits(self) -> bool:
        """Whether there are so few rows that their time is that of loads that wait for others."""
        return self.rows * self.lanes < _BUSY

    @property
    def steps(self) -> int:
        """Loads of a thread."""
        return -(-self.columns // (self.width * self.lanes))

    @property
    def parts(self) -> int:
        """Rows of a block, a power of two: whole warps, few where there are not enough blocks
        otherwise; one row of several warps."""
        if self.lanes > _WARP:
            return 1
        wanted = max(self.rows // (2 * _SMS), _WARP // self.lanes)
        return min(_THREADS // self.lanes, 1 << (wanted.bit_length() - 1))


def kernel(norm: RowNorm) -> tirx.PrimFunc:
    """Return the kernel of a norm: (data, vectors, result)."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(norm.kind)
            T.func_attr(KERNEL)
            RowKernel(norm).emit()
        return builder.get()


class RowKernel:
    """A kernel under construction, with its parameters, registers and shared memory."""

    #: Values of a row that all of its threads have.
    STATISTICS = 2

    def __init__(self, norm: RowNorm) -> None:
        self.norm = norm
        self._parameters()
        self.loaded = registers((norm.steps, norm.width), norm.dtype)
        self.kept = registers((norm.steps, norm.width), "float32")
        self.factors = [registers((norm.steps, norm.width), "float32") for _ in self.vectors]
        self.stored = registers((norm.width,), norm.out_dtype)
        self.row_values = registers((self.STATISTICS,), "float32")
        warps = norm.lanes // _WARP
        if warps > 1:
            shape = (self.STATISTICS, warps)
            self.of_warps = T.sblock_alloc_buffer(shape, "float32", scope="shared")

    def _parameters(self) -> None:
        norm = self.norm
        self.data = T.arg("x", T.buffer(norm.shape, norm.dtype))
        self.vectors = [
            T.arg(f"v{i}", T.buffer((norm.columns,), "float32")) for i in range(norm.vectors)
        ]
        self.out = T.arg("y", T.buffer((norm.rows, norm.columns), norm.out_dtype))

    def emit(self) -> None:
        norm = self.norm
        with (
            T.thread_binding(0, -(-norm.rows // norm.parts), thread="blockIdx.x") as block,
            T.thread_binding(0, norm.parts * norm.lanes, thread="threadIdx.x") as thread,
        ):
            self.lane = tirx.indexmod(thread, norm.lanes)
            self.row = block * norm.parts + tirx.indexdiv(thread, norm.lanes)
            self._body()

    def _body(self) -> None:
        if self.norm.kind == "layer_norm":
            self._layer_norm()
        elif self.norm.kind == "rms_norm":
            self._rms_norm()
        else:
            self._softmax(self.norm.kind == "log_softmax")

    def _layer_norm(self) -> None:
        self._load()
        mean, scale = self._mean_and_scale()
        self._store(lambda x, gamma, beta: (x - mean) * scale * gamma + beta)

    def _mean_and_scale(self) -> tuple[Expr, Expr]:
        """The mean of a row, and one over its deviation."""
        count = float(self.norm.columns)
        mean = self._keep(0, self._statistic(0, 0.0, add, lambda x, *_: x) / count)
        squares = self._statistic(1, 0.0, add, lambda x, *_: (x - mean) * (x - mean))
        return mean, self._keep(1, tirx.rsqrt(squares / count + self.norm.epsilon))

    def _rms_norm(self) -> None:
        self._load()
        squares = self._statistic(0, 0.0, add, lambda x: x * x)
        scale = self._keep(0, tirx.rsqrt(squares / float(self.norm.columns) + self.norm.epsilon))
        self._store(lambda x, gamma: x * scale * gamma)

    def _softmax(self, logarithm: bool) -> None:
        self._load()
        largest = self._statistic(0, _LOWEST, tirx.max, lambda x: x)
        if logarithm:
            total = self._statistic(1, 0.0, add, lambda x: tirx.exp(x - largest))
            logarithm_of_total = self._keep(1, tirx.log(total))
            self._store(lambda x: x - largest - logarithm_of_total)
            return
        for k, _ in self._vectors():
            for i in range(self.norm.width):
                T.buffer_store(self.kept, tirx.exp(self.kept[k, i] - largest), [k, i])
        share = self._keep(1, 1.0 / self._statistic(1, 0.0, add, lambda x: x))
        self._store(lambda x: x * share)

    def _elements(self, k: int, i: int) -> tuple[Expr, ...]:
        """What a thread keeps of an element."""
        return (self.kept[k, i],)

    def _keep(self, which: int, value: Expr) -> Expr:
        """A value of the row in place of a statistic that it is computed of."""
        T.buffer_store(self.row_values, value, [which])
        return self.row_values[which]

    def _vectors(self) -> Iterator[tuple[int, Expr]]:
        """Number and first column of each of a thread's vectors, in a guard where it may be
        missing."""
        norm = self.norm
        groups = norm.columns // norm.width
        for k in range(norm.steps):
            group = self.lane + k * norm.lanes
            with when(group < groups, (k + 1) * norm.lanes > groups):
                yield k, group * norm.width

    def _load(self) -> None:
        """Keep a thread's elements."""
        norm, row = self.norm, self._read_row()
        first: Expr | int = 0
        if norm.run is not None:
            first = norm.run.offset + tirx.indexmod(row, norm.run.count) * norm.columns
            row = tirx.indexdiv(row, norm.run.count)
        for k, column in self._vectors():
            with T.vectorized(0, norm.width) as i:
                T.buffer_store(self.loaded, self.data[row, first + column + i], [k, i])
        for k, _ in self._vectors():
            for i in range(norm.width):
                value = self.loaded[k, i].astype("float32")
                T.buffer_store(
                    self.kept, value * norm.factor if norm.factor != 1 else value, [k, i]
                )
        if norm.waits:
            for k, column in self._vectors():
                self._load_factors(k, column)

    def _read_row(self) -> Expr:
        """Threads behind the last row read that row: all of a warp take part in shuffles."""
        norm = self.norm
        return tirx.min(self.row, norm.rows - 1) if norm.rows % norm.parts else self.row

    def _load_factors(self, k: int, column: Expr) -> None:
        """Load gamma and beta of a thread's vector."""
        piece = min(self.norm.width, _VECTOR)
        for vector, factors in zip(self.vectors, self.factors, strict=True):
            for begin in range(0, self.norm.width, piece):
                with T.vectorized(0, piece) as i:
                    T.buffer_store(factors, vector[column + begin + i], [k, begin + i])

    def _statistic(self, which: int, start: float, join: Join, value: Callable[..., Expr]) -> Expr:
        """Join the values of all elements of the row; each of its threads has the result."""
        norm, at = self.norm, [which]

        def take(other: Expr) -> None:
            T.buffer_store(self.row_values, join(self.row_values[which], other), at)

        T.buffer_store(self.row_values, tirx.const(start, "float32"), at)
        for k, _ in self._vectors():
            for i in range(norm.width):
                take(value(*self._elements(k, i)))
        lanes = min(norm.lanes, _WARP)
        for bit in reversed(range(lanes.bit_length() - 1)):
            take(of_lane(1 << bit, self.row_values[which]))
        if norm.lanes > _WARP:
            with when(tirx.indexmod(self.lane, _WARP) == 0):
                place = [which, tirx.indexdiv(self.lane, _WARP)]
                T.buffer_store(self.of_warps, self.row_values[which], place)
            T.evaluate(T.tvm_storage_sync("shared"))
            T.buffer_store(self.row_values, self.of_warps[which, 0], at)
            for warp in range(1, norm.lanes // _WARP):
                take(self.of_warps[which, warp])
        return self.row_values[which]

    def _store(self, value: Callable[..., Expr]) -> None:
        """Write ``value(element, gamma, beta)`` of a thread's elements, with the vectors of the
        kind."""
        norm = self.norm
        with when(self.row < norm.rows, norm.rows % norm.parts != 0):
            for k, column in self._vectors():
                if not norm.waits:
                    self._load_factors(k, column)
                for i in range(norm.width):
                    factors = (factors[k, i] for factors in self.factors)
                    result = value(*self._elements(k, i), *factors)
                    T.buffer_store(self.stored, result.astype(norm.out_dtype), [i])
                with T.vectorized(0, norm.width) as i:
                    T.buffer_store(self.out, self.stored[i], [self.row, column + i])


def registers(shape: tuple[int, ...], dtype: str) -> tirx.Buffer:
    return T.sblock_alloc_buffer(shape, dtype, scope="local")


def of_lane(bits: int, value: Expr) -> Expr:
    """The value of the lane whose number differs by ``bits``."""
    return T.tvm_warp_shuffle_xor(tirx.const(0xFFFFFFFF, "uint32"), value, bits, _WARP, _WARP)


def add(a: Expr, b: Expr) -> Expr:
    return a + b

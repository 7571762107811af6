"""Max pooling on (n, h, w, c) tensors and its gradient, 16 bytes per thread.

Two kernels: the first writes, for each window, its maximum and the index of the first tap that has
it, one byte per output; the second gathers, for each input pixel, from the few windows that contain
it. TVM's schedules would load single elements, because both read under conditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .keep_nan import larger
from .loads import vector_width

_THREADS = 256


@dataclass(frozen=True)
class MaxPool:
    """A max pooling of (n, h, w, c) to (n, p, q, c) without dilation; padding is (top, left)."""

    n: int
    h: int
    w: int
    c: int
    p: int
    q: int
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dtype: str

    @property
    def taps(self) -> int:
        return self.window[0] * self.window[1]

    @property
    def width(self) -> int:
        """Channels of a thread."""
        return vector_width(self.c, self.dtype)


def maxima(pool: MaxPool) -> tirx.PrimFunc:
    """x (n, h, w, c) -> maxima y (n, p, q, c), and the numbers of their taps, row by row, as uint8.

    The maximum of a window with NaN is NaN.
    """
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("max_pool2d_taps")
            T.func_attr(KERNEL)
            x = _Image("x", pool, pool.h, pool.w, pool.dtype)
            y = _Image("y", pool, pool.p, pool.q, pool.dtype)
            out = _Image("which", pool, pool.p, pool.q, "uint8")
            for image in (x, y, out):
                image.flatten()
            largest, value = (
                T.sblock_alloc_buffer((pool.width,), pool.dtype, scope="local") for _ in range(2)
            )
            found = T.sblock_alloc_buffer((pool.width,), "uint8", scope="local")
            with _pixels(pool, pool.p, pool.q) as (n, p, q, c):
                for i in range(pool.width):
                    T.buffer_store(largest, tirx.min_value(pool.dtype), [i])
                    T.buffer_store(found, tirx.const(pool.taps - 1, "uint8"), [i])
                for tap in range(pool.taps):
                    row = p * pool.stride[0] - pool.padding[0] + tap // pool.window[1]
                    column = q * pool.stride[1] - pool.padding[1] + tap % pool.window[1]
                    inside = tirx.all(row >= 0, row < pool.h, column >= 0, column < pool.w)
                    with when(inside):
                        _copy(pool.width, value, lambda i, r=row, s=column: x.at(n, r, s, c + i))
                        for i in range(pool.width):
                            T.buffer_store(value, larger(largest[i], value[i]), [i])
                            hit = tirx.Select(
                                value[i] != largest[i], tirx.const(tap, "uint8"), found[i]
                            )
                            T.buffer_store(found, hit, [i])
                            T.buffer_store(largest, value[i], [i])
                _store(pool.width, y, largest, [n, p, q], c, pool.width)
                _store(pool.width, out, found, [n, p, q], c, 4)
        return builder.get()


def scatter(pool: MaxPool) -> tirx.PrimFunc:
    """dy (n, p, q, c), taps (n, p, q, c) -> dx (n, h, w, c); sums are in float32."""
    near = [-(-pool.window[i] // pool.stride[i]) for i in range(2)]
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("max_pool2d_backward")
            T.func_attr(KERNEL)
            dy = _Image("dy", pool, pool.p, pool.q, pool.dtype)
            which = _Image("which", pool, pool.p, pool.q, "uint8")
            dx = _Image("dx", pool, pool.h, pool.w, pool.dtype)
            for image in (dy, which, dx):
                image.flatten()
            total = T.sblock_alloc_buffer((pool.width,), "float32", scope="local")
            value, result = (
                T.sblock_alloc_buffer((pool.width,), pool.dtype, scope="local") for _ in range(2)
            )
            taps = T.sblock_alloc_buffer((pool.width,), "int32", scope="local")
            with _pixels(pool, pool.h, pool.w) as (n, h, w, c):
                for i in range(pool.width):
                    T.buffer_store(total, tirx.const(0.0, "float32"), [i])
                for a, b in ((a, b) for a in range(near[0]) for b in range(near[1])):
                    p = (h + pool.padding[0]) // pool.stride[0] - a
                    q = (w + pool.padding[1]) // pool.stride[1] - b
                    r = h + pool.padding[0] - p * pool.stride[0]
                    s = w + pool.padding[1] - q * pool.stride[1]
                    inside = tirx.all(
                        p >= 0, p < pool.p, r < pool.window[0],
                        q >= 0, q < pool.q, s < pool.window[1],
                    )  # fmt: skip
                    with when(inside):
                        _copy(pool.width, value, lambda i, p=p, q=q: dy.at(n, p, q, c + i))
                        for i in range(pool.width):
                            T.buffer_store(taps, which.at(n, p, q, c + i).astype("int32"), [i])
                        tap = (r * pool.window[1] + s).astype("int32")
                        for i in range(pool.width):
                            more = tirx.Select(
                                taps[i] == tap, value[i].astype("float32"),
                                tirx.const(0.0, "float32"),
                            )  # fmt: skip
                            T.buffer_store(total, total[i] + more, [i])
                for i in range(pool.width):
                    T.buffer_store(result, total[i].astype(pool.dtype), [i])
                _store(pool.width, dx, result, [n, h, w], c, pool.width)
        return builder.get()


class _Image:
    """An (n, rows, columns, c) parameter under its flat index."""

    def __init__(self, name: str, pool: MaxPool, rows: int, columns: int, dtype: str) -> None:
        self._sizes, self._dtype = (rows, columns, pool.c), dtype
        self._param = T.arg(name, T.buffer((pool.n, rows, columns, pool.c), dtype))
        self._count = math.prod((pool.n, *self._sizes))

    def flatten(self) -> None:
        """To be called when all parameters are there."""
        self.flat = T.decl_buffer((self._count,), self._dtype, data=self._param.data)

    def index(self, n: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        rows, columns, channels = self._sizes
        return ((n * rows + row) * columns + column) * channels + c

    def at(self, n: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        return self.flat[self.index(n, row, column, c)]


@contextmanager
def _pixels(pool: MaxPool, rows: int, columns: int) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
    """(n, row, column, first channel) of each thread; indices are not decomposed by division, which
    TVM 0.27 cannot always flatten."""
    groups = pool.c // pool.width
    lanes = next(k for k in range(min(groups, _THREADS), 0, -1) if groups % k == 0)
    side = min(_THREADS // lanes, columns)
    with (
        T.thread_binding(0, pool.n, thread="blockIdx.z") as n,
        T.thread_binding(0, rows, thread="blockIdx.y") as row,
        T.thread_binding(0, -(-columns // side), thread="blockIdx.x") as block,
        T.thread_binding(0, side, thread="threadIdx.y") as beside,
        T.thread_binding(0, lanes, thread="threadIdx.x") as lane,
    ):
        column = block * side + beside
        with when(column < columns, columns % side != 0), T.serial(0, groups // lanes) as part:
            yield n, row, column, (part * lanes + lane) * pool.width


def _copy(width: int, to: tirx.Buffer, source: Callable[..., Expr], most: int = 16) -> None:
    """Copy ``width`` elements into registers, at most ``most`` per load."""
    step = math.gcd(width, most)
    for start in range(0, width, step):
        with T.vectorized(0, step) as i:
            T.buffer_store(to, source(start + i), [start + i])


def _store(
    width: int, to: _Image, source: tirx.Buffer, at: list[Expr], channel: Expr, most: int
) -> None:
    step = math.gcd(width, most)
    for start in range(0, width, step):
        with T.vectorized(0, step) as i:
            T.buffer_store(
                to.flat, source[start + i], [to.index(at[0], at[1], at[2], channel + start + i)]
            )

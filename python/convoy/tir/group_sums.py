"""GPU kernels for the statistics of channels-last group norms: the scale and shift of each channel.

The blocks of an image share its rows. Each adds the elements and squares of all groups in its rows,
which are read once, with 16-byte loads if a vector lies in one group; a second kernel adds the
partial sums of an image's blocks. Loops are bound to threads; run serially they compute the same
result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .loads import vector_width

_THREADS = 256
_SMS = 132
#: Channels of a group in one load from which on the kernels are worth it.
_LEAST_WIDTH = 4
#: Steps of a thread that are written out, for loads in flight.
_UNROLL = 8


@dataclass(frozen=True)
class GroupSums:
    """Statistics of ``groups`` groups of channels of 16-bit data (images, rows, channels)."""

    images: int
    rows: int
    channels: int
    groups: int
    dtype: str
    epsilon: float

    @property
    def members(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def width(self) -> int:
        """Channels that a thread loads at once; all of one group."""
        return math.gcd(self.members, vector_width(self.channels, self.dtype))

    @property
    def lanes(self) -> int:
        """Threads side by side: a divisor of the vectors of a row."""
        vectors = self.channels // self.width
        return max(n for n in range(1, min(vectors, _THREADS) + 1) if vectors % n == 0)

    @property
    def parts(self) -> int:
        """Rows of a block at a time."""
        return max(1, min(_THREADS // self.lanes, self.rows))

    @property
    def chunks(self) -> int:
        """Blocks that share an image."""
        return max(1, min(-(-2 * _SMS // self.images), self.rows // (4 * self.parts)))

    @property
    def fits(self) -> bool:
        """Whether a block has whole rows, and threads load several channels of one group."""
        return self.lanes * self.width == self.channels and self.width >= _LEAST_WIDTH


def kernels(sums: GroupSums) -> list[tirx.PrimFunc]:
    """(data, partial sums) and (partial sums, gamma, beta, scale, shift); partial sums are (images,
    chunks, 2, groups), scale and shift (images, channels), all in float32."""
    return [_partial(sums), _finish(sums)]


def partial_shape(sums: GroupSums) -> tuple[int, int, int, int]:
    return sums.images, sums.chunks, 2, sums.groups


def _partial(sums: GroupSums) -> tirx.PrimFunc:
    width, lanes, parts = sums.width, sums.lanes, sums.parts
    steps = -(-sums.rows // (parts * sums.chunks))
    each = lanes // sums.groups  # lanes of a group
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("group_sums")
            T.func_attr(KERNEL)
            data = T.arg("x", T.buffer((sums.images, sums.rows, sums.channels), sums.dtype))
            out = T.arg("partial", T.buffer(partial_shape(sums), "float32"))
            shared = T.sblock_alloc_buffer(
                (2, parts * each, sums.groups), "float32", scope="shared"
            )
            loaded = T.sblock_alloc_buffer((width,), sums.dtype, scope="local")
            mine = T.sblock_alloc_buffer((2,), "float32", scope="local")
            with (
                T.thread_binding(0, sums.images, thread="blockIdx.y") as image,
                T.thread_binding(0, sums.chunks, thread="blockIdx.x") as chunk,
            ):
                with _threads(lanes * parts) as thread:
                    part, lane = thread // lanes, thread % lanes
                    _clear(mine)
                    with (T.unroll if steps <= _UNROLL else T.serial)(0, steps) as step:
                        row = (chunk * steps + step) * parts + part
                        with when(row < sums.rows, steps * parts * sums.chunks != sums.rows):
                            with T.vectorized(0, width) as i:
                                value = data[image, row, lane * width + i]
                                T.buffer_store(loaded, value, [i])
                            for i in range(width):
                                wide = loaded[i].astype("float32")
                                T.buffer_store(mine, mine[0] + wide, [0])
                                T.buffer_store(mine, mine[1] + wide * wide, [1])
                    place = part * each + lane % each
                    for which in range(2):
                        T.buffer_store(shared, mine[which], [which, place, lane // each])
                _add_up(shared, parts * each, sums.groups, lanes * parts)
                with _threads(lanes * parts) as thread:
                    for at in _turns(thread, 2 * sums.groups, lanes * parts):
                        which, group = at // sums.groups, at % sums.groups
                        T.buffer_store(out, shared[which, 0, group], [image, chunk, which, group])
        return builder.get()


def _finish(sums: GroupSums) -> tirx.PrimFunc:
    """A block for each group of an image."""
    threads = 1 << (max(32, min(_THREADS, max(sums.chunks, sums.members))) - 1).bit_length()
    count = 1.0 / (sums.rows * sums.members)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("group_affine")
            T.func_attr(KERNEL)
            partial = T.arg("partial", T.buffer(partial_shape(sums), "float32"))
            gamma, beta = (T.arg(n, T.buffer((sums.channels,), "float32")) for n in ("g", "b"))
            outs = [
                T.arg(n, T.buffer((sums.images, sums.channels), "float32"))
                for n in ("scale", "shift")
            ]
            shared = T.sblock_alloc_buffer((2, threads, 1), "float32", scope="shared")
            mine = T.sblock_alloc_buffer((2,), "float32", scope="local")
            with (
                T.thread_binding(0, sums.images, thread="blockIdx.y") as image,
                T.thread_binding(0, sums.groups, thread="blockIdx.x") as group,
            ):
                with _threads(threads) as thread:
                    _clear(mine)
                    for at in _turns(thread, sums.chunks, threads):
                        for which in range(2):
                            value = mine[which] + partial[image, at, which, group]
                            T.buffer_store(mine, value, [which])
                    for which in range(2):
                        T.buffer_store(shared, mine[which], [which, thread, 0])
                _add_up(shared, threads, 1, threads)
                with _threads(threads) as thread:
                    mean = shared[0, 0, 0] * tirx.const(count, "float32")
                    square = shared[1, 0, 0] * tirx.const(count, "float32")
                    variance = tirx.max(square - mean * mean, tirx.const(0.0, "float32"))
                    for at in _turns(thread, sums.members, threads):
                        channel = group * sums.members + at
                        scale = tirx.rsqrt(variance + sums.epsilon) * gamma[channel]
                        T.buffer_store(outs[0], scale, [image, channel])
                        T.buffer_store(outs[1], beta[channel] - mean * scale, [image, channel])
        return builder.get()


@contextmanager
def _threads(count: int) -> Iterator[Expr]:
    """Threads of a block; code after a nest of threads sees all of its stores."""
    with T.thread_binding(0, count, thread="threadIdx.x") as thread:
        yield thread


def _turns(thread: Expr, size: int, threads: int) -> Iterator[Expr]:
    """The positions below ``size`` that are a thread's, in a guard where one may be missing."""
    for k in range(-(-size // threads)):
        at = thread + k * threads
        with when(at < size, (k + 1) * threads > size):
            yield at


def _clear(mine: tirx.Buffer) -> None:
    for which in range(2):
        T.buffer_store(mine, tirx.const(0.0, "float32"), [which])


def _add_up(shared: tirx.Buffer, count: int, groups: int, threads: int) -> None:
    """Add up ``shared`` (2, count, groups) along its middle axis, into place 0."""
    while count > 1:
        half = -(-count // 2)
        moved = (count - half) * groups
        with _threads(threads) as thread:
            for at in _turns(thread, 2 * moved, threads):
                which, place, group = at // moved, at % moved // groups, at % groups
                value = shared[which, place, group] + shared[which, place + half, group]
                T.buffer_store(shared, value, [which, place, group])
        count = half

"""GPU kernels for the statistics of channels-last group norms: the scale and shift of each channel.

The blocks of an image share its rows. Each adds the elements and squares of all groups in its rows,
which are read once, with 16-byte loads if a vector lies in one group or holds several whole ones; a
second kernel adds the partial sums of an image's blocks.
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
_MOST_THREADS = 1024
_SMS = 132
_SHARED_BYTES = 48 << 10
#: Most chunks whose sums an element-wise kernel adds up in each thread, for so many groups of its
#: vector, and steps of each chunk. More groups have fewer chunks, and as all threads add them up,
#: so few elements that it takes less time than a launch.
_FEW_CHUNKS, _FEW_GROUPS, _FEW_STEPS, _FEW_ELEMENTS = 8, 2, 16, 1 << 19
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
        """Channels that a thread loads at once: of one group, or of several whole groups."""
        most = vector_width(self.channels, self.dtype)
        return most if most % self.members == 0 else math.gcd(self.members, most)

    @property
    def own(self) -> int:
        """Groups in one load."""
        return max(1, self.width // self.members)

    @property
    def lanes(self) -> int:
        """Threads side by side, which load a row."""
        return self.channels // self.width

    @property
    def parts(self) -> int:
        """Rows of a block at a time."""
        return _even(self.rows, max(1, min(_THREADS // self.lanes, self.rows)))

    @property
    def few(self) -> bool:
        """Whether the data are few enough for so few chunks that all who need their sums can add
        them up."""
        elements = self.images * self.rows * self.channels
        fits = self.own <= _FEW_GROUPS or elements <= _FEW_ELEMENTS
        return fits and self.rows <= self._few_chunks * _FEW_STEPS * self.parts

    @property
    def _few_chunks(self) -> int:
        return min(_FEW_CHUNKS, _FEW_CHUNKS * _FEW_GROUPS // self.own)

    @property
    def chunks(self) -> int:
        """Blocks that share an image."""
        wanted = min(-(-2 * _SMS // self.images), self.rows // (4 * self.parts))
        most = self._few_chunks if self.few else wanted
        return _even(-(-self.rows // self.parts), max(1, min(wanted, most)))

    @property
    def fits(self) -> bool:
        """Whether a block has room for a row."""
        shared = 8 * self.parts * self.lanes * self.own
        return self.lanes <= _MOST_THREADS and shared <= _SHARED_BYTES


def _even(size: int, most: int) -> int:
    """Return the largest divisor of ``size`` up to ``most`` that is near it, or ``most``: a load
    that may lie behind the end is a branch, for which those behind it wait."""
    return next((n for n in range(most, most // 2, -1) if size % n == 0), most)


def partial_shape(sums: GroupSums) -> tuple[int, int, int, int]:
    return sums.images, sums.chunks, 2, sums.groups


def sums_kernel(sums: GroupSums) -> tirx.PrimFunc:
    """(data, partial sums); partial sums are (images, chunks, 2, groups) in float32."""
    width, lanes, parts, own = sums.width, sums.lanes, sums.parts, sums.own
    steps = -(-sums.rows // (parts * sums.chunks))
    each = max(1, sums.members // width)  # lanes of a group
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
            mine = T.sblock_alloc_buffer((2, own), "float32", scope="local")
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
                                group, wide = i * own // width, loaded[i].astype("float32")
                                _add(mine, [0, group], wide)
                                _add(mine, [1, group], wide * wide)
                    place = part * each + lane % each
                    for which in range(2):
                        for group in range(own):
                            at = [which, place, lane // each * own + group]
                            T.buffer_store(shared, mine[which, group], at)
                _add_up(shared, parts * each, sums.groups, lanes * parts)
                with _threads(lanes * parts) as thread:
                    for at in _turns(thread, 2 * sums.groups, lanes * parts):
                        which, group = at // sums.groups, at % sums.groups
                        T.buffer_store(out, shared[which, 0, group], [image, chunk, which, group])
        return builder.get()


def affine_kernel(sums: GroupSums) -> tirx.PrimFunc:
    """(partial sums, gamma, beta, scale, shift), the last two (images, channels) in float32; a
    block for each group of an image."""
    threads = 1 << (max(32, min(_THREADS, max(sums.chunks, sums.members))) - 1).bit_length()
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
            mine = T.sblock_alloc_buffer((2, 1), "float32", scope="local")
            with (
                T.thread_binding(0, sums.images, thread="blockIdx.y") as image,
                T.thread_binding(0, sums.groups, thread="blockIdx.x") as group,
            ):
                with _threads(threads) as thread:
                    _clear(mine)
                    for at in _turns(thread, sums.chunks, threads):
                        for which in range(2):
                            _add(mine, [which, 0], partial[image, at, which, group])
                    for which in range(2):
                        T.buffer_store(shared, mine[which, 0], [which, thread, 0])
                _add_up(shared, threads, 1, threads)
                with _threads(threads) as thread:
                    for at in _turns(thread, sums.members, threads):
                        channel = group * sums.members + at
                        found = affine(
                            sums, (shared[0, 0, 0], shared[1, 0, 0]), gamma[channel], beta[channel]
                        )
                        for out, value in zip(outs, found, strict=True):
                            T.buffer_store(out, value, [image, channel])
        return builder.get()


def affine(
    sums: GroupSums, of_group: tuple[Expr, Expr], gamma: Expr, beta: Expr
) -> tuple[Expr, Expr]:
    """Return the factor of a channel and the term that is added, from the sums of its group and of
    its squares."""
    count = tirx.const(1.0 / (sums.rows * sums.members), "float32")
    mean, square = (total * count for total in of_group)
    variance = tirx.max(square - mean * mean, tirx.const(0.0, "float32"))
    scale = tirx.rsqrt(variance + tirx.const(sums.epsilon, "float32")) * gamma
    return scale, beta - mean * scale


@contextmanager
def _threads(count: int) -> Iterator[Expr]:
    """Threads of a block; code after a nest of threads sees all of its stores."""
    with T.thread_binding(0, count, thread="threadIdx.x") as thread:
        yield thread


def _turns(thread: Expr, size: int, threads: int) -> Iterator[Expr]:
    """Yield the positions below ``size`` that are a thread's, in a guard where one may be
    missing."""
    for k in range(-(-size // threads)):
        at = thread + k * threads
        with when(at < size, (k + 1) * threads > size):
            yield at


def _clear(mine: tirx.Buffer) -> None:
    for which in range(2):
        for group in range(int(mine.shape[1])):
            T.buffer_store(mine, tirx.const(0.0, "float32"), [which, group])


def _add(buffer: tirx.Buffer, at: list[int], value: Expr) -> None:
    T.buffer_store(buffer, buffer[tuple(at)] + value, at)


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

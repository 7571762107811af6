"""GPU kernels for the sums of group norms: of each group's elements and their squares.

The blocks of an image share its rows. Each adds the elements and squares of all groups in its rows,
which are read once, with 16-byte loads if a vector lies in one group or holds several whole ones;
:mod:`.group_affine` adds the partial sums of an image's blocks.

Of 32-bit data an element of each group, its pivot, is subtracted first: squares lose no digits then
where the mean is large beside the deviation (Chan, Golub and LeVeque, 1983, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .block_sums import add, add_up, clear, threads, turns
from .builder import KERNEL, when
from .loads import itemsize, vector_width

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
    """Sums over ``groups`` groups of channels of data (images, rows, channels)."""

    images: int
    rows: int
    channels: int
    groups: int
    dtype: str

    @classmethod
    def of_contiguous(cls, groups: int, size: int, dtype: str) -> GroupSums:
        """Of so many groups whose elements lie side by side: an image each."""
        width = vector_width(size, dtype)
        lanes = next(n for n in range(_THREADS, 0, -1) if size % (width * n) == 0)
        return cls(groups, size // (width * lanes), width * lanes, 1, dtype)

    @property
    def members(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the data."""
        return self.images, self.rows, self.channels

    @property
    def has_pivot(self) -> bool:
        return itemsize(self.dtype) > 2

    @property
    def partial_shape(self) -> tuple[int, int, int, int]:
        """Of the partial sums, float32: the sum of each chunk of a group, of its squares, and the
        pivot."""
        return self.images, self.groups, self.chunks, 2 + self.has_pivot

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


def sums_kernel(sums: GroupSums) -> tirx.PrimFunc:
    """(data, partial sums)."""
    width, lanes, parts, own = sums.width, sums.lanes, sums.parts, sums.own
    steps = -(-sums.rows // (parts * sums.chunks))
    each = max(1, sums.members // width)  # lanes of a group
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("group_sums")
            T.func_attr(KERNEL)
            data = T.arg("x", T.buffer(sums.shape, sums.dtype))
            out = T.arg("partial", T.buffer(sums.partial_shape, "float32"))
            shared = T.sblock_alloc_buffer(
                (2, parts * each, sums.groups), "float32", scope="shared"
            )
            loaded = T.sblock_alloc_buffer((width,), sums.dtype, scope="local")
            mine = T.sblock_alloc_buffer((2, own), "float32", scope="local")
            if sums.has_pivot:
                pivot = T.sblock_alloc_buffer((own,), "float32", scope="local")
            with (
                T.thread_binding(0, sums.images, thread="blockIdx.x") as image,
                T.thread_binding(0, sums.chunks, thread="blockIdx.y") as chunk,
            ):
                with threads(lanes * parts) as thread:
                    part, lane = thread // lanes, thread % lanes
                    clear(mine)
                    if sums.has_pivot:
                        for group in range(own):
                            first = data[image, 0, (lane // each * own + group) * sums.members]
                            T.buffer_store(pivot, first, [group])
                    with (T.unroll if steps <= _UNROLL else T.serial)(0, steps) as step:
                        row = (chunk * steps + step) * parts + part
                        with when(row < sums.rows, steps * parts * sums.chunks != sums.rows):
                            with T.vectorized(0, width) as i:
                                value = data[image, row, lane * width + i]
                                T.buffer_store(loaded, value, [i])
                            for i in range(width):
                                group, wide = i * own // width, loaded[i].astype("float32")
                                if sums.has_pivot:
                                    wide = wide - pivot[group]
                                add(mine, [0, group], wide)
                                add(mine, [1, group], wide * wide)
                    place = part * each + lane % each
                    for which in range(2):
                        for group in range(own):
                            at = [which, place, lane // each * own + group]
                            T.buffer_store(shared, mine[which, group], at)
                add_up(shared, parts * each, sums.groups, lanes * parts)
                with threads(lanes * parts) as thread:
                    for at in turns(thread, 2 * sums.groups, lanes * parts):
                        which, group = at // sums.groups, at % sums.groups
                        T.buffer_store(out, shared[which, 0, group], [image, group, chunk, which])
                    if sums.has_pivot:
                        for group in turns(thread, sums.groups, lanes * parts):
                            first = data[image, 0, group * sums.members]
                            T.buffer_store(out, first, [image, group, chunk, 2])
        return builder.get()

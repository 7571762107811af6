"""Two sums over the rows of channels-last tensors, and functions of them for each channel.

The statistics of a batch norm and of its gradient: activations of shape (rows, channels) are read
once, 16 bytes per thread, and reduced to two numbers per channel, from which a few vectors are
computed. Small problems are one kernel with a block for a few channels; large ones are two, of
which the first has many blocks per channel and writes partial sums. TVM's schedule rules take one
reduction at a time and would read the activations twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm.tirx import Expr

from .loads import itemsize, vector_width

_SMS = 132
_BLOCK_BYTES = 128 << 10  # most bytes that a block reads for a problem to be one kernel
ROWS_AT_ONCE = 4  # loads in flight in each thread


@dataclass(frozen=True)
class ChannelSums:
    """Two sums over rows, and the results computed from them.

    ``data`` are the dtypes of the activations, ``vectors`` is the number of (channels,) float32
    inputs, ``outputs`` that of the (channels,) float32 results. ``terms(x, v, first)`` gives the
    two summands of one element from the activations, the vectors and (if ``uses_first``) the first
    row of the first activation, all float32; ``finish(sums, v, first)`` the results of a channel.
    Both depend on ``attributes`` and the sizes alone: sums that are equal in these have one kernel.
    """

    name: str
    rows: int
    channels: int
    data: tuple[str, ...]
    vectors: int
    outputs: int
    terms: Callable[[Sequence[Expr], Sequence[Expr], Expr], tuple[Expr, Expr]] = field(
        compare=False
    )
    finish: Callable[[Sequence[Expr], Sequence[Expr], Expr], Sequence[Expr]] = field(compare=False)
    uses_first: bool = False
    attributes: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the activations: (rows, channels), or (rows,) for one channel."""
        return (self.rows, self.channels) if self.channels > 1 else (self.rows,)

    @property
    def width(self) -> int:
        """Channels that a thread loads at once."""
        return min(vector_width(self.channels, dtype) for dtype in self.data)

    @property
    def single(self) -> bool:
        """Whether one kernel is enough."""
        tile = _single_lanes(self) * self.width
        size = sum(itemsize(dtype) for dtype in self.data)
        return self.rows * tile * size <= _BLOCK_BYTES


def partial_shape(sums: ChannelSums) -> tuple[int, int, int]:
    """(2, blocks, channels)."""
    return 2, grid_of(sums).chunks, sums.channels


@dataclass(frozen=True)
class Grid:
    """Threads and blocks of a kernel."""

    lanes: int  # threads side by side, each with ``width`` channels
    parts: int  # threads that share a channel
    chunks: int  # blocks that share a channel

    def steps(self, rows: int) -> int:
        """Rows of each thread, rounded up."""
        return -(-rows // (self.parts * self.chunks))


def _single_lanes(sums: ChannelSums) -> int:
    """Return as few lanes as fill 32 bytes, more where that still leaves 64 blocks."""
    groups = sums.channels // sums.width
    fits = [n for n in range(1, min(groups, 32) + 1) if groups % n == 0]
    enough = [n for n in fits if groups // n >= 64]
    few = [n for n in fits if n * sums.width * itemsize(sums.data[0]) <= 32]
    return max([*few, *enough[-1:]])


def grid_of(sums: ChannelSums) -> Grid:
    if sums.single:
        lanes = _single_lanes(sums)
        return Grid(lanes, power_of_two(min(512 // lanes, sums.rows)), 1)
    groups = sums.channels // sums.width
    lanes = max(n for n in range(1, min(groups, 32) + 1) if groups % n == 0)
    parts = power_of_two(256 // lanes)
    wanted = max(1, min(8 * _SMS * lanes // groups, sums.rows // (parts * ROWS_AT_ONCE)))
    even = [n for n in range(wanted, wanted // 2, -1) if sums.rows % (parts * n) == 0]
    return Grid(lanes, parts, even[0] if even else wanted)


def power_of_two(limit: int) -> int:
    return 1 << (max(1, limit).bit_length() - 1)

"""Which threads compute which gates and elements of a kernel of :mod:`convoy.tir.channel_gate`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

_WARP, _SMS = 32, 132
#: Bytes that memory moves at least.
_SECTOR = 32
_THREADS = (64, 128, 256)
#: Vectors of a thread along the pixels, and along the channels of a block.
_STEPS, _MOST_LANES = (1, 2, 4, 8), 32
#: Vectors of the matrix that a thread has in registers.
_MOST_WEIGHTS = 12
#: Bytes in a microsecond that an SM gets of the L2 cache: about half of the peak.
_RATE = 24e3
#: Threads that an SM runs at once, and the time of one of a thread's vectors.
_RESIDENT, _VECTOR_US = 1024, 0.03
#: Longest that the gates may add to a kernel. A kernel of their own takes no less.
MOST_GATES_US = 1.3


@dataclass(frozen=True)
class GatedShape:
    """An image times a gate for each channel, which is a function of a matrix-vector product.

    Attributes:
        length: Elements of the vector, and of each row of the matrix.
        width: Channels that a thread moves at once.
        of_row: Elements of a row of the matrix that a thread loads at once.
        itemsize, weight_itemsize: Bytes of an element of the image, and of the matrix.
    """

    images: int
    pixels: int
    channels: int
    length: int
    width: int
    of_row: int
    itemsize: int = 2
    weight_itemsize: int = 2


@dataclass(frozen=True)
class Layout:
    """Threads of a block: ``rows`` times ``lanes``, the last one fastest, and idle ones that fill a
    warp.

    A thread has ``width`` channels of ``steps`` pixels. For the gates, ``sharing`` threads have a
    row of the matrix.
    """

    shape: GatedShape
    lanes: int
    rows: int
    steps: int

    @property
    def threads(self) -> int:
        return -(-self.rows * self.lanes // _WARP) * _WARP

    @property
    def vectors(self) -> int:
        """Vectors of a pixel."""
        return self.shape.channels // self.shape.width

    @property
    def chunks(self) -> int:
        """Blocks side by side in a pixel."""
        return -(-self.vectors // self.lanes)

    @property
    def pixels(self) -> int:
        """Pixels of a block."""
        return self.rows * self.steps

    @property
    def parts(self) -> int:
        """Blocks that share the channels of an image."""
        return -(-self.shape.pixels // self.pixels)

    @property
    def blocks(self) -> int:
        return self.shape.images * self.parts * self.chunks

    @property
    def gates(self) -> int:
        """Gates of a block."""
        return self.lanes * self.shape.width

    @property
    def row_vectors(self) -> int:
        """Vectors of a row of the matrix."""
        return self.shape.length // self.shape.of_row

    @property
    def sharing(self) -> int:
        """Threads that share a row of the matrix: a power of two, so that they are of one warp."""

        def serial(threads: int) -> tuple[int, int]:
            """Loads one after the other and additions, of which each costs about the same."""
            return self._weights(threads) + threads.bit_length() - 1, -threads

        return min((1, 2, 4, 8, 16, 32), key=serial)

    def _weights(self, sharing: int) -> int:
        return -(-self.gates * sharing // self.threads) * -(-self.row_vectors // sharing)

    @property
    def weights(self) -> int:
        """Vectors of the matrix that a thread loads."""
        return self._weights(self.sharing)

    @property
    def _blocks_of_an_sm(self) -> int:
        return -(-self.blocks // _SMS)

    @property
    def gates_us(self) -> float:
        """Time of reading the matrix, estimated: each block reads the rows of its channels."""
        read = self.gates * self.shape.length * self.shape.weight_itemsize
        return self._blocks_of_an_sm * read / _RATE

    @property
    def moving_us(self) -> float:
        """Time of reading and writing the image out of the L2 cache, estimated; short runs of
        channels are more requests, and runs that are no whole sectors share some with others."""
        vector = self.shape.width * self.shape.itemsize
        run = self.lanes * vector
        run += _SECTOR - vector if run % _SECTOR else 0
        moved = 2 * min(self.pixels, self.shape.pixels) * run
        return self._blocks_of_an_sm * moved * (1 + 1 / self.lanes) / _RATE

    @property
    def serial_us(self) -> float:
        """Time that a thread takes for its vectors one after the other, estimated."""
        rounds = max(1.0, self.blocks * self.threads / (_SMS * _RESIDENT))
        return rounds * (self.steps + self.weights) * _VECTOR_US


@functools.lru_cache(maxsize=1024)
def layout_of(shape: GatedShape) -> Layout | None:
    """The fastest layout by estimate; None where computing the gates in each block takes longer
    than a kernel of their own."""
    fitting = [
        one
        for one in _layouts(shape)
        if one.weights <= _MOST_WEIGHTS and one.gates_us <= MOST_GATES_US
    ]
    return min(fitting, key=lambda one: one.gates_us + one.moving_us + one.serial_us, default=None)


def _layouts(shape: GatedShape) -> Iterator[Layout]:
    vectors = shape.channels // shape.width
    fewest = -(-_SECTOR // (shape.width * shape.itemsize))
    for lanes in range(min(vectors, fewest), min(vectors, _MOST_LANES) + 1):
        if vectors % lanes and lanes.bit_count() > 1:
            continue  # blocks of equal size, or threads that are easily numbered
        for threads in _THREADS:
            for steps in _STEPS:
                parts = -(-shape.pixels // (threads // lanes * steps))
                rows = math.ceil(shape.pixels / (parts * steps))
                yield Layout(shape, lanes, rows, steps)

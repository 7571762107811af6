"""Clusters of ``squeeze_excite``: how their thread blocks share an image, what these need and how
long they take, as squeeze_excite_library.cuh and squeeze_excite_config.cuh have it."""

from __future__ import annotations

from typing import NamedTuple

from ....ir.device import Device
from ....ir.squeeze_excite import block_of
from ....ir.workload import Workload
from ..kernel import ceil_div

#: Thread blocks of an image, as ``kSqueezeClusters``.
CLUSTERS = (1, 2, 4, 8, 16)
#: Bytes of shared memory of a block, of its weights where they are kept there, and of those of a
#: first GEMM that each block computes for itself.
MOST_SHARED, _MOST_WEIGHTS, _MOST_REPEATED = 226 << 10, 96 << 10, 48 << 10
_THREADS = 512
#: Channels of a vector, and least channels of a block where blocks share them.
_VECTOR, _LEAST_CHANNELS = 8, 32
#: Microseconds of a launch, and of what the blocks of a cluster wait for each other; bytes of x
#: that a block sums up and multiplies in one, and bytes that memory gives in one; blocks that an SM
#: runs at a time.
_LAUNCH_US, _WAITING_US, _BLOCK_RATE, _MEMORY_RATE, _BLOCKS = 2.0, 2.0, 1e5, 3e6, 2


class Cluster(NamedTuple):
    """``SqueezeExciteParams``: the blocks of an image and the parts of its pixels; the vectors of 8
    channels, the pixels and the results of the first GEMM of a block; the channels of an image
    and all its results."""

    blocks: int
    pixel_parts: int
    vectors: int
    pixels: int
    squeezed: int
    all_channels: int
    all_squeezed: int

    @property
    def shared_bytes(self) -> int:
        """``SqueezeExciteLayout``: shared memory of a block that keeps no pixels."""
        own = self.vectors * _VECTOR
        sums = self.pixel_parts * self.all_channels if self.pixel_parts > 1 else 0
        vectors = (self.all_channels, sums, self.all_squeezed, own, self.squeezed, own)
        floats = (*vectors, _VECTOR * _THREADS)
        weights = (2 * self.squeezed * self.all_channels, 2 * own * self.all_squeezed)
        kept = weights if sum(weights) <= _MOST_WEIGHTS else ()
        return sum(ceil_div(size, 16) * 16 for size in (*(4 * count for count in floats), *kept))

    @property
    def fits(self) -> bool:
        """Whether there are enough threads and shared memory."""
        return self.vectors <= _THREADS and self.shared_bytes <= MOST_SHARED

    def guess_us(self, w: Workload, device: Device) -> float:
        """Time of a launch that starts when its predecessor has ended."""
        waves = ceil_div(w.n * self.blocks, _BLOCKS * device.sm_count)
        block_us = 2 * _VECTOR * self.pixels * self.vectors / _BLOCK_RATE
        return _LAUNCH_US + w.bytes_moved / _MEMORY_RATE + waves * (_WAITING_US + block_us)


def cluster_of(w: Workload, blocks: int) -> Cluster:
    """Split an image between ``blocks``: its channels as long as each has some in a row, then its
    pixels."""
    squeezed, channel_parts = block_of(w).channels, blocks
    while channel_parts > 1 and w.c < _LEAST_CHANNELS * channel_parts:
        channel_parts //= 2
    pixel_parts = blocks // channel_parts
    repeats = 2 * w.c * squeezed <= _MOST_REPEATED
    return Cluster(
        blocks,
        pixel_parts,
        ceil_div(w.c // _VECTOR, channel_parts),
        ceil_div(w.h * w.w, pixel_parts),
        squeezed if repeats else ceil_div(squeezed, blocks),
        w.c,
        squeezed,
    )

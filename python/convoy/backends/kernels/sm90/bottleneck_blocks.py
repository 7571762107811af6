"""Thread blocks of ``bottleneck``: what they need and how long they take, as
bottleneck_library.cuh chooses them."""

from __future__ import annotations

from typing import NamedTuple

from ....ir.bottleneck import Bottleneck
from ....ir.device import Device
from ....ir.operands import weight_bytes
from ....ir.workload import Workload
from ..kernel import ceil_div

#: Rows and columns of outputs of a tile.
TILE = 8
#: Bytes of shared memory of a block.
MOST_SHARED = 226 << 10
#: Channels of a step of a reduction, and of a block of results: 128 bytes of a pixel.
_CHANNELS, _ROW = 64, 128
#: Least blocks of results on their way to memory of a warpgroup, and least steps of a ring of
#: weights.
_SLOTS, _STAGES = 2, 6
_ALIGNMENT, _BARRIERS = 1024, 512
#: Microseconds of a launch, bytes of weights that a block reads in one, cycles of one, and bytes
#: that memory gives in one.
_LAUNCH_US, _WEIGHTS_RATE, _CYCLES, _MEMORY_RATE = 3.0, 70e3, 1755.0, 4e6
#: Cycles of 64 results of 64 pixels for 16 channels, and of what is done with them at the end.
_STEP_CYCLES, _EPILOGUE_CYCLES = 32, 600


class Block(NamedTuple):
    """``BottleneckBlock``: warpgroups that compute, and whether weights come again for every
    round of tiles."""

    groups: int
    streamed: bool

    def has_registers(self, w: Workload) -> bool:
        """Return whether the threads hold the sums of a tile."""
        middle, narrow = _padded(w)
        if self.groups == 3:
            return middle == 64 and narrow <= 64
        return self.groups == 1 or middle + narrow <= 192

    def shared_bytes(self, w: Workload) -> int:
        """Least shared memory: weights, a tile's pixels and results of each warpgroup, biases."""
        (middle, narrow), (chunks, blocks) = _padded(w), _steps(w)
        rows, columns = (
            TILE + (taps - 1) * dilation
            for taps, dilation in zip((w.r, w.s), w.dilation, strict=True)
        )
        weights = w.taps * chunks * middle + blocks * (middle + narrow)
        if self.streamed:
            weights = _STAGES * max(middle, narrow)
        pixels = chunks * ceil_div(rows * columns * _ROW, _ALIGNMENT) * _ALIGNMENT
        biases = 4 * (middle + blocks * _CHANNELS + narrow)
        own = self.groups * (pixels + _SLOTS * _CHANNELS * _ROW)
        return _ALIGNMENT + weights * _ROW + own + biases + _BARRIERS

    def fits(self, w: Workload) -> bool:
        """Return whether there are enough registers and shared memory."""
        return self.has_registers(w) and self.shared_bytes(w) <= MOST_SHARED

    def guess_us(self, w: Workload, device: Device) -> float:
        """Time of a launch that starts when its predecessor has ended, with one block on each SM,
        whose warpgroups compute a tile each and share the tensor cores."""
        (middle, narrow), (chunks, blocks) = _padded(w), _steps(w)
        tiles = w.n * ceil_div(w.p, TILE) * ceil_div(w.q, TILE)
        waves = ceil_div(tiles, self.groups * device.sm_count)
        mmas = w.taps * chunks * 4 * middle // 64 + blocks * (middle + narrow) // 16
        alone = _STEP_CYCLES * mmas + _EPILOGUE_CYCLES * blocks
        wave_us = max(alone, self.groups * _STEP_CYCLES * mmas) / _CYCLES
        weights_us = weight_bytes(w) / _WEIGHTS_RATE
        computing_us = weights_us + waves * wave_us
        if self.streamed:
            computing_us = waves * max(wave_us, weights_us)
        return _LAUNCH_US + max(computing_us, w.bytes_moved / _MEMORY_RATE)


#: As ``kBottleneckBlocks``.
BLOCKS = (Block(1, False), Block(2, False), Block(3, False), Block(1, True))


def bottleneck_of(w: Workload) -> Bottleneck:
    """The bottleneck of a workload that is one."""
    assert w.bottleneck is not None, w.key
    return w.bottleneck


def _padded(w: Workload) -> tuple[int, int]:
    """Results of the first and of the third convolution as a block computes them."""
    middle, narrow = (ceil_div(size, _CHANNELS) for size in (w.k, bottleneck_of(w).reduce))
    return middle * _CHANNELS, narrow * _CHANNELS


def _steps(w: Workload) -> tuple[int, int]:
    """Steps of 64 channels of the first convolution's input, and of the second one's results."""
    return ceil_div(w.c, _CHANNELS), ceil_div(bottleneck_of(w).expand, _CHANNELS)

"""The grouped convolution that stages its inputs in shared memory: tiles, launches, their times.

Mirrors ``codegen/depthwise/staged_tiles.cuh`` and the checks of its library; tests compare them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from . import warp_tiles
from .kernels import StagedKernel
from .warp_tiles import Launch, Tile, mismatch, tile_of

#: Bytes of shared memory that every GPU gives a block.
MOST_SHARED = 96 << 10
_WARPS, _STEP, _WIDEST = 4, 16, 32
_SHARED_PER_SM = 224 << 10


TILES = (
    *(Tile(rows, columns) for columns in (1, 2, 3, 4) for rows in (1, 2, 4)),
    *(Tile(rows, columns) for columns in (6, 8) for rows in (1, 2)),
)


class Block(NamedTuple):
    """A block's groups; images, rows and columns of outputs; rows and columns of inputs; and
    elements from one to the next pixel and output channel in shared memory."""

    groups: int
    images: int
    rows: int
    columns: int
    input_rows: int
    input_columns: int
    input_pitch: int
    weight_pitch: int
    steps: int

    @property
    def input_pixels(self) -> int:
        """Pixels of inputs of a tile."""
        return self.images * self.input_rows * self.input_columns

    def shared_bytes(self, tile: Tile) -> int:
        """Shared memory with the inputs of one tile."""
        weights = self.groups * tile.outputs * self.weight_pitch
        return 2 * (weights + self.input_pixels * self.input_pitch) + 16 * self.steps


@functools.lru_cache(maxsize=4096)
def block_of(w: Workload, tile: Tile) -> Block:
    """Return how blocks divide a problem; see ``staged_block`` of ``staged_tiles.cuh``."""
    channels, outputs = w.c // w.groups, w.k // w.groups
    groups = 1 if outputs > tile.outputs else min(w.groups, -(-32 // channels))
    columns = _evenly(w.q, _WIDEST)
    rows = _evenly(w.p, max(1, _WARPS * 16 * tile.rows // columns))
    images = min(w.n, max(1, _WARPS * 16 * tile.rows // (rows * columns)))
    steps = -(-w.r * w.s * channels // _STEP)
    return Block(
        groups,
        images,
        rows,
        columns,
        (rows - 1) * w.stride[0] + (w.r - 1) * w.dilation[0] + 1,
        (columns - 1) * w.stride[1] + (w.s - 1) * w.dilation[1] + 1,
        _pitch(groups * channels, w.stride[1]),
        _pitch(steps * _STEP, 1),
        steps,
    )


def _evenly(length: int, most: int) -> int:
    return -(-length // -(-length // most))


def _pitch(elements: int, stride: int) -> int:
    unit = 32 if stride % 2 else 16
    return (elements + unit // 2 - 1) // unit * unit + unit // 2


def why_not(launch: Launch, w: Workload, device: Device) -> str:
    """Return why a launch cannot run a workload that the family accepts; empty if it can."""
    if found := mismatch(launch, TILES, w):
        return found
    if w.k // w.groups % 4:
        return f"{w.k // w.groups} outputs a group: a multiple of 4"
    tile = tile_of(launch, TILES)
    needed = block_of(w, tile).shared_bytes(tile)
    return f"{needed} bytes of shared memory" if needed > MOST_SHARED else ""


def launches(w: Workload) -> list[Launch]:
    """The launches of a workload."""
    return warp_tiles.launches(StagedKernel(w.dtype), TILES, w)


def workspace_bytes(launch: Launch, w: Workload, device: Device) -> int:
    """None is needed."""
    return 0


# Fitted to 168 times on an H200, of 15 problems at N=1 and 64 (spread 13%).
#: A launch until its first result, and a step of a warp that waits for shared memory.
_START_US, _WAIT_US = 3.7, 0.052
#: Of an SM: a byte that is read from shared memory or copied to it, a multiplication, a warp's
#: share of a tile, and storing 16 x 8 outputs.
_READ_US, _COPY_US, _MULTIPLY_US, _SHARE_US, _STORE_US = 1.9e-6, 3.0e-5, 7.6e-4, 0.03, 0.024
_EFFICIENCY = 0.8


def guess_us(launch: Launch, w: Workload, device: Device) -> float:
    """Time of a launch: that of its bytes, of an SM's work or of one warp after another."""
    tile = tile_of(launch, TILES)
    block, products = block_of(w, tile), tile.rows * tile.columns
    slabs = -(-w.groups // block.groups) * -(-(w.k // w.groups) // tile.outputs)
    blocks = slabs * -(-w.n // block.images) * -(-w.p // block.rows) * -(-w.q // block.columns)
    pixels = block.images * block.rows * block.columns
    shares = block.groups * -(-pixels // (16 * tile.rows))
    step = 256 * (2 * tile.rows + tile.columns) * _READ_US + products * _MULTIPLY_US
    copied = block.input_pixels * block.groups * (w.c // w.groups) * DTYPE_BYTES[w.dtype]
    work = shares * (block.steps * step + _SHARE_US + products * _STORE_US) + copied * _COPY_US
    resident = max(1, min(4, _SHARED_PER_SM // block.shared_bytes(tile)))
    waves = max(1.0, blocks / (device.sm_count * resident))
    waiting = waves * -(-shares // _WARPS) * block.steps * _WAIT_US
    moved = w.bytes_moved / (_EFFICIENCY * device.memory_bandwidth) * 1e6
    return _START_US + max(moved, max(1.0, blocks / device.sm_count) * work, waiting)

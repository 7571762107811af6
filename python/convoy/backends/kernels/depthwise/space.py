"""Tiles of the depthwise kernels, and launches worth measuring for a workload, best guess first.

The tables mirror ``codegen/depthwise/tiles.cuh`` and the checks of its libraries; tests compare
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from ..kernel import Launch as KernelLaunch
from .kernels import FILTERS, ConvKernel, FilterKernel, WgradKernel

Launch = KernelLaunch[FilterKernel]

#: Activations of the kernels, in the order of ``activations.cuh``.
ACTIVATIONS = ("none", "relu", "clip", "sigmoid", "silu", "gelu", "hardswish")
#: Taps of a row that the kernel of any filter handles at a time; columns of a window at most.
TAP_CHUNK, MOST_WINDOW = 4, 32
#: Threads of a block.
THREADS = 128


class Tile(NamedTuple):
    """Tile of a thread: channels, and rows and columns of outputs."""

    vector: int
    rows: int
    columns: int

    @property
    def single(self) -> bool:
        return self.rows == self.columns == 1


#: By filter size; 0 is any.
TILES = {
    size: tuple(map(Tile._make, tiles))
    for size, tiles in {
        3: [(4, 4, 4), (4, 2, 7), (4, 1, 4), (2, 2, 7), (2, 1, 4), (1, 1, 7), (4, 1, 1), (1, 1, 1)],
        5: [(4, 2, 4), (4, 1, 7), (4, 1, 4), (2, 2, 7), (2, 1, 4), (1, 1, 7), (4, 1, 1), (1, 1, 1)],
        7: [(4, 1, 7), (4, 1, 4), (2, 2, 7), (2, 1, 4), (1, 1, 7), (4, 1, 1), (1, 1, 1)],
        0: [(4, 1, 8), (4, 1, 4), (2, 1, 4), (1, 1, 8), (4, 1, 1), (1, 1, 1)],
    }.items()
}  # fmt: skip


#: Of wgrad: rows is 1, columns are the outputs that a thread adds at a time.
_ALL = ((4, 1, 4), (2, 1, 4), (1, 1, 8), (4, 1, 1), (1, 1, 1))
_LARGE = ((2, 1, 4), (1, 1, 8), (2, 1, 1), (1, 1, 1))
WGRAD_TILES = {
    size: tuple(map(Tile._make, tiles))
    for size, tiles in {0: _ALL, 3: _ALL, 5: _ALL, 7: _LARGE}.items()
}


@dataclass(frozen=True)
class Axis:
    """Outputs along an axis and what they read, summed over the phases of a strided dgrad; see
    ``codegen/depthwise/axis.cuh``.

    counts   outputs of each phase
    taps     filter positions of each phase
    stride   inputs from one output of a strip to the next, in units of ``spread``
    spread   outputs from one output of a strip to the next
    """

    counts: tuple[int, ...]
    taps: tuple[int, ...]
    stride: int
    spread: int

    def strips(self, tile: int) -> int:
        """Strips of ``tile`` outputs, of all phases."""
        group = self.spread * tile
        return sum(-(-count // group) * self.spread for count in self.counts)


def axes(w: Workload) -> tuple[Axis, Axis]:
    """Rows and columns of the problem; wgrad reads what fprop reads."""
    height, width = (w.h, w.w) if w.op == "dgrad" else (w.p, w.q)
    return (
        _axis(w.op, height, w.r, w.stride[0], w.dilation[0], w.padding[0]),
        _axis(w.op, width, w.s, w.stride[1], w.dilation[1], w.padding[1]),
    )


def _axis(op: str, outputs: int, taps: int, stride: int, dilation: int, pad: int) -> Axis:
    if op == "dgrad":
        phases = range(stride)
        lowest = [(phase + pad) % stride for phase in phases]
        return Axis(
            tuple(max(0, -(-(outputs - phase) // stride)) for phase in phases),
            tuple(-(-(taps - low) // stride) if taps > low else 0 for low in lowest),
            1,
            dilation if stride == 1 else 1,
        )
    divisor = math.gcd(stride, dilation)
    return Axis((outputs,), (taps,), stride // divisor, dilation // divisor)


def filter_of(w: Workload) -> int:
    """The library that a workload takes: of its filter's size, or of any."""
    strided = w.op == "dgrad" and w.stride != (1, 1)
    return w.r if w.r == w.s and w.r in FILTERS and not strided else 0


def tiles_of(kernel: FilterKernel) -> tuple[Tile, ...]:
    """The tiles that a library is compiled for."""
    return (WGRAD_TILES if isinstance(kernel, WgradKernel) else TILES)[kernel.filter]


def launch_of(kernel: FilterKernel, tile: int, activation: str) -> Launch:
    """The launch of a tile. Its ``swizzle`` stands for the tile and, of fprop, the activation."""
    if isinstance(kernel, WgradKernel):
        return Launch(kernel, swizzle=tile)
    return Launch(kernel, swizzle=tile * len(ACTIVATIONS) + ACTIVATIONS.index(activation))


def tile_of(launch: Launch) -> Tile | None:
    """The tile of a launch; None if its kernel has no such tile."""
    wgrad = isinstance(launch.kernel, WgradKernel)
    index = launch.swizzle if wgrad else launch.swizzle // len(ACTIVATIONS)
    tiles = tiles_of(launch.kernel)
    return tiles[index] if index < len(tiles) else None


def why_not(launch: Launch, w: Workload, device: Device) -> str:
    """Return why a launch cannot run a workload that the family accepts; empty if it can."""
    kernel, tile = launch.kernel, tile_of(launch)
    wgrad = isinstance(kernel, WgradKernel)
    if wgrad != (w.op == "wgrad") or kernel.dtype != w.dtype:
        return f"{kernel.name} is of another operation or dtype"
    if kernel.filter not in (0, filter_of(w)):
        return f"{kernel.name} with a filter of {w.r}x{w.s}, stride {w.stride[0]}x{w.stride[1]}"
    if tile is None:
        return f"{kernel.name} has no tile for swizzle {launch.swizzle}"
    if not wgrad and ACTIVATIONS[launch.swizzle % len(ACTIVATIONS)] != w.epilogue.activation:
        return f"swizzle {launch.swizzle} stands for another activation"
    if tile.vector * DTYPE_BYTES[w.dtype] > 16 or w.k % tile.vector:
        return f"vectors of {tile.vector} with K = {w.k} in {w.dtype}"
    if w.k != w.c and tile.vector > 1:
        return "several channels of a multiplier in one vector"
    if tile.single:
        return ""
    rows, columns = axes(w)
    if columns.stride > 2 or (tile.rows > 1 and rows.stride != columns.stride):
        return f"tile {tile.rows}x{tile.columns} with stride {w.stride[0]}x{w.stride[1]}"
    window = (tile.columns - 1) * columns.stride + (kernel.filter or TAP_CHUNK)
    return f"a window of {window} columns" if window > MOST_WINDOW else ""


def workspace_bytes(launch: Launch, w: Workload, device: Device) -> int:
    """Workspace of a launch: slices of wgrad's sums in float32."""
    return _slices(launch, w, device) * w.r * w.s * w.k * 4 if w.op == "wgrad" else 0


def _slices(launch: Launch, w: Workload, device: Device) -> int:
    """Blocks that share wgrad's sums; see ``depthwise_wgrad_library.cuh``."""
    tile = tile_of(launch)
    assert tile is not None
    rows, columns = axes(w)
    strips = rows.strips(1) * columns.strips(tile.columns) * w.n
    taps = launch.kernel.filter or TAP_CHUNK
    groups = -(-w.r // taps) * -(-w.s // taps)
    vectors = block_vectors(tile, strips, w)
    channel_blocks = -(-w.k // (vectors * tile.vector))
    rounds = -(-strips // (THREADS // vectors))
    most = max(1, 6 * device.sm_count // (channel_blocks * groups))
    return min(most, max(1, -(-rounds // 4)))


def block_vectors(tile: Tile, strips: int, w: Workload) -> int:
    """Vectors of channels of a block; see ``set_block`` of ``library.cuh``."""
    vectors = w.k // tile.vector
    most = max(8, 64 // (tile.vector * DTYPE_BYTES[w.dtype]))
    while most < THREADS and strips * most < THREADS:
        most *= 2
    blocks = -(-vectors // most)
    return -(-vectors // blocks)


def launches(w: Workload) -> list[Launch]:
    """The launches of all tiles of the workload's own kernel."""
    kernel_class = WgradKernel if w.op == "wgrad" else ConvKernel
    kernel = kernel_class(filter_of(w), w.dtype)
    return [launch_of(kernel, i, w.epilogue.activation) for i in range(len(tiles_of(kernel)))]


# A launch that moves nothing; from the first load to the first store of a block with warm caches.
_LAUNCH_US, _LATENCY_US = 1.4, 1.2
#: Share of the copy bandwidth that the kernels reach.
_EFFICIENCY = 0.8
#: Instructions that a scheduler of an SM issues in a microsecond where arithmetic is all that
#: counts: 940 to 1045 for 5x5 and 7x7 filters at N=64 on an H200.
_ISSUED_PER_US = 1000.0


def guess_us(launch: Launch, w: Workload, device: Device) -> float:
    """Time of a launch from that of its bytes and that of its instructions. The two overlap in
    part: the root of the sum of their squares fits 3x3 filters, where both count."""
    tile = tile_of(launch)
    assert tile is not None
    rows, columns = axes(w)
    strips = rows.strips(tile.rows) * columns.strips(tile.columns) * w.n
    warps = strips * w.k / tile.vector / 32
    instructions = _instructions(tile, launch.kernel.filter, w, rows, columns)
    rounds = max(1.0, warps / (4 * device.sm_count))
    moved = w.bytes_moved / (_EFFICIENCY * device.memory_bandwidth) * 1e6
    issued = rounds * instructions / _ISSUED_PER_US
    us = _LAUNCH_US + _LATENCY_US + math.hypot(moved, issued)
    if w.op != "wgrad":
        return us
    slices = 2 * workspace_bytes(launch, w, device) / (_EFFICIENCY * device.memory_bandwidth) * 1e6
    return us + _LAUNCH_US + _LATENCY_US + slices


def _instructions(tile: Tile, size: int, w: Workload, rows: Axis, columns: Axis) -> float:
    """Instructions of a thread for a strip: loads and conversions of its window, multiplications
    and stores."""
    if size:
        window_rows = (tile.rows - 1) * rows.stride + size
        reads = float(window_rows * ((tile.columns - 1) * columns.stride + size))
        taps = float(size * size)
    else:
        chunks = sum(-(-taps // TAP_CHUNK) for taps in columns.taps) / len(columns.taps)
        filter_rows = sum(rows.taps) / len(rows.taps)
        reads = filter_rows * chunks * ((tile.columns - 1) * columns.stride + TAP_CHUNK)
        taps = filter_rows * chunks * TAP_CHUNK
    outputs = tile.rows * tile.columns
    converted = 0 if w.dtype == "float32" else tile.vector
    return (
        150
        + reads * (3 + converted)
        + taps * (1 + outputs * tile.vector)
        + outputs * (8 + 3 * tile.vector)
    )

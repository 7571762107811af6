"""1x1 convolutions whose time is that of moving pixels, and GEMMs: libraries, rules and
launches of ``pointwise_conv``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ....ir import fields as checks
from ....ir.activation import ACTIVATIONS
from ....ir.device import Device
from ....ir.dtypes import HALF_DTYPES
from ....ir.workload import Workload
from . import small
from .small import SmallConvKernel


class Tile(NamedTuple):
    """Output channels of a block, and blocks that an SM has room for."""

    columns: int
    blocks_of_sm: int


#: As ``kPointwiseColumns`` in pointwise_conv_library.cuh, with the sizes of its blocks.
TILES = (Tile(64, 2), Tile(128, 2), Tile(192, 1), Tile(256, 1))
ROWS, GROUPS, CHUNK = 64, 2, 64
#: Bytes of shared memory of one of two blocks, and of the only block of an SM.
SHARED = {2: 112 << 10, 1: 226 << 10}
MOST_PIXELS, MOST_K = (1 << 30) - 1, 1 << 20


@dataclass(frozen=True, order=True)
class PointwiseConvKernel(SmallConvKernel):
    """A library for all sizes and tiles of a dtype."""

    family: ClassVar[str] = "pointwise_conv"
    template: ClassVar[str] = "PointwiseConv"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "dtype": checks.one_of(HALF_DTYPES),
        "activation": checks.one_of(("", *ACTIVATIONS[1:])),
        "residual_last": checks.boolean,
    }


def kernel_of(w: Workload) -> PointwiseConvKernel | None:
    """The kernel for a workload without objections of the family; None where there is none."""
    is_pointwise = (w.r, w.s, w.stride, w.padding) == (1, 1, (1, 1), (0, 0, 0, 0))
    if w.op not in ("fprop", "matmul") or not is_pointwise or w.dtype not in HALF_DTYPES:
        return None
    if w.n * w.p * w.q > MOST_PIXELS or w.k > MOST_K or not any(fits(t, w) for t in TILES):
        return None
    kernel = small.kernel_of(w)
    return PointwiseConvKernel(kernel.dtype, kernel.activation, kernel.residual_last)


def fits(tile: Tile, w: Workload) -> bool:
    """Return whether shared memory, as pointwise_conv_config.cuh lays it out, holds all weights of
    the tile and pixels of two."""
    chunks = -(-w.c // CHUNK)
    weights, stored = chunks * tile.columns * 128, GROUPS * (ROWS * tile.columns * 2 + 8)
    pixels = 2 * (chunks * ROWS * 128 + 16)
    return 1024 + weights + pixels + stored + tile.columns * 4 + 8 <= SHARED[tile.blocks_of_sm]


def why_not(kernel: PointwiseConvKernel, swizzle: int, w: Workload) -> str:
    """Return why a launch cannot run a workload without objections; empty if it can."""
    if kernel != kernel_of(w):
        return f"{kernel.name} is of another operation, dtype, filter or epilogue"
    if (found := small.tile_of(swizzle, w, TILES)) is None:
        return small.no_tile(swizzle)
    tile, split = found
    if split > 1:
        return f"clusters of {split} blocks: a block works alone"
    return "" if fits(tile, w) else f"{tile}: too much memory"


def guesses(w: Workload, device: Device) -> Iterator[tuple[float, int]]:
    """(time, swizzle) of all tiles of a workload that has a kernel."""
    for number, tile in enumerate(TILES):
        if fits(tile, w):
            yield guess_us(tile, w, device), small.swizzle_of(number, 1, small.chosen(w))


#: Fitted to 1,046 measurements of 357 workloads on an H200, within 16%, in microseconds: a launch,
#: and each 64 channels of the tile; of each tile of pixels of a block a constant, each step
#: of 16 input channels for 64 channels, each channel of the tile and each that there is.
#: The first guess takes 1.4% longer than the best tile, the better of the first two 0.1%.
_LAUNCH_US, _WIDTH_US, _TILE_US, _STEP_US, _COLUMN_US, _OUTPUT_US = (
    0.7, 0.65, 0.86, 1.7e-2, 8.3e-4, 1.8e-3,
)  # fmt: skip


def guess_us(tile: Tile, w: Workload, device: Device) -> float:
    """Time of a launch that starts when its predecessor has ended."""
    blocks, width = -(-w.k // tile.columns), tile.columns / 64
    together = device.sm_count * tile.blocks_of_sm
    tiles = max(1.0, -(-w.n * w.p * w.q // ROWS) * blocks / together)
    tile_us = _TILE_US + -(-w.c // 16) * width * _STEP_US
    tile_us += tile.columns * _COLUMN_US + w.k / blocks * _OUTPUT_US
    return _LAUNCH_US + width * _WIDTH_US + tiles * tile_us

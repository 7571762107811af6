"""``small_conv`` for stride 1 and several taps, which loads the input of a tile once with its halo:
libraries, rules and launches."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ....ir import fields as checks
from ....ir.activation import ACTIVATIONS
from ....ir.device import Device
from ....ir.workload import Workload
from . import small
from .small import SPLITS, STEP_BYTES, SmallConvKernel


class Tile(NamedTuple):
    """Output positions and channels of a cluster; whether a block may take a whole SM."""

    rows: int
    columns: int
    whole_sm: bool = False


#: As ``kHaloConvTiles`` in halo_conv_library.cuh.
TILES = (
    Tile(64, 32), Tile(64, 64), Tile(128, 32), Tile(128, 64), Tile(128, 64, True),
    Tile(256, 64, True),
)  # fmt: skip
#: Bytes of shared memory that a block may take, and stages of its ring of weights.
HALF_SM, WHOLE_SM, MOST_STAGES = 112 << 10, 226 << 10, 24
#: Pixels of a side of a copy, and tiles of a grid.
LARGEST_BOX, MOST_TILES = 256, 65535


@dataclass(frozen=True, order=True)
class HaloConvKernel(SmallConvKernel):
    """A library for all sizes and tiles of a dtype."""

    family: ClassVar[str] = "halo_conv"
    template: ClassVar[str] = "HaloConv"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "dtype": checks.one_of(("float16", "bfloat16", "tf32")),
        "activation": checks.one_of(("", *ACTIVATIONS[1:])),
        "residual_last": checks.boolean,
    }


@dataclass(frozen=True)
class Cover:
    """The tiles that cover the outputs: ``HaloTile`` of halo_conv_layout.cuh, which derives it."""

    width: int
    height: int
    images: int
    pitch: int
    rows: int
    tiles: int

    @property
    def input_bytes(self) -> int:
        """Bytes of a tile and a chunk of channels."""
        return self.images * self.rows * self.pitch * STEP_BYTES


@functools.lru_cache(maxsize=4096)  # for each tile and split of a workload
def cover(w: Workload, rows: int) -> Cover | None:
    """The cover with the fewest tiles of so many positions; of those, with the least input."""
    reach_h, reach_w = (w.r - 1) * w.dilation[0], (w.s - 1) * w.dilation[1]

    def covers() -> Iterator[Cover]:
        for across in range(1, w.q + 1):
            width = -(-w.q // across)
            if width > rows:
                continue
            pitch = width + reach_w
            most = (rows - width) // pitch + 1
            height = -(-w.p // -(-w.p // most))
            shapes = [(height, 1)]
            if across == 1 and rows > 64 and (w.p - 1) * pitch + width <= 64:
                shapes.append((w.p, rows // 64))
            for height, images in shapes:
                if pitch <= LARGEST_BOX and height + reach_h <= LARGEST_BOX:
                    tiles = -(-w.q // width) * -(-w.p // height) * -(-w.n // images)
                    yield Cover(width, height, images, pitch, height + reach_h, tiles)

    return min(covers(), key=lambda c: (c.tiles, c.input_bytes), default=None)


def kernel_of(w: Workload) -> HaloConvKernel | None:
    """The kernel for a workload without objections of the family; None where there is none."""
    if w.op != "fprop" or w.stride != (1, 1) or w.r * w.s == 1:
        return None
    kernel = small.kernel_of(w)
    if kernel.dtype == "float32":
        return None
    return HaloConvKernel(kernel.dtype, kernel.activation, kernel.residual_last)


def fits(tile: Tile, split: int, w: Workload) -> bool:
    """Return whether each block has a step, shared memory, as halo_conv_library.cuh lays it out,
    and the grid the tiles."""
    covered = cover(w, tile.rows)
    if covered is None or covered.tiles > MOST_TILES or split > small.steps(w):
        return False
    chunks = small.steps(w) // (w.r * w.s)
    inputs = (2 if chunks > 1 else 1) * (-(-covered.input_bytes // 1024) * 1024)
    stage, sums = tile.columns * STEP_BYTES, tile.rows * (tile.columns + 8) * 4
    most = WHOLE_SM if tile.whole_sm else HALF_SM
    steps, ring = -(-small.steps(w) // split), w.r * w.s + 1

    def total(stages: int) -> int:
        return 1024 + inputs + stages * (stage + 16) + sums + 8

    stages = min(steps, ring, MOST_STAGES)
    while stages > 1 and total(stages) > most:
        stages -= 1
    while split > 1 and inputs + stages * stage < sums:  # that are exchanged lie there for a while
        stages += 1
    return total(stages) <= most and (min(2, steps) <= stages <= ring or stages >= steps)


def why_not(kernel: HaloConvKernel, swizzle: int, w: Workload) -> str:
    """Return why a launch cannot run a workload without objections; empty if it can."""
    if kernel != kernel_of(w):
        return f"{kernel.name} is of another operation, dtype, stride or epilogue"
    if (found := small.tile_of(swizzle, w, TILES)) is None:
        return small.no_tile(swizzle)
    tile, split = found
    if not fits(tile, split, w):
        return f"{tile} of {split} blocks: too few steps, too much memory or too many tiles"
    return ""


def guesses(w: Workload, device: Device) -> Iterator[tuple[float, int]]:
    """(time, swizzle) of all tiles and splits of a workload that has a kernel."""
    for number, tile in enumerate(TILES):
        for split in SPLITS:
            if fits(tile, split, w):
                swizzle = small.swizzle_of(number, split, small.chosen(w))
                yield guess_us(tile, split, w, device), swizzle


#: Fitted to 8,762 measurements of 220 workloads on an H200, most of them with N = 1, 8 and 32, in
#: microseconds: a launch, a step and what each row and column of the tile adds to it, each output
#: of a wave, the exchange of sums, and with whole SMs a wave of that. The first guess takes 5.7%
#: longer than the best of all that were measured, the best of the first four 0.7%.
_LAUNCH_US, _STEP_US, _ROW_US, _COLUMN_US, _OUTPUT_US, _SPLIT_US, _SPLIT_WAVE_US = (
    2.1, 1.9e-2, 7e-4, 1.2e-3, 3.6e-4, 0.77, 0.28,
)  # fmt: skip


def guess_us(tile: Tile, split: int, w: Workload, device: Device) -> float:
    """Time of a launch that starts when its predecessor has ended."""
    covered = cover(w, tile.rows)
    assert covered is not None
    waves = max(1.0, -(-w.k // tile.columns) * covered.tiles * split / device.sm_count)
    step = _STEP_US + tile.rows * _ROW_US + tile.columns * _COLUMN_US
    in_turn = -(-small.steps(w) // split)
    exchange = 0.0
    if split > 1:
        exchange = _SPLIT_US + tile.whole_sm * _SPLIT_WAVE_US * min(waves, 3.0)
    return _LAUNCH_US + waves * (in_turn * step + tile.rows * tile.columns * _OUTPUT_US) + exchange

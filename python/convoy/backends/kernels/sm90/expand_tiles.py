"""Tiles of ``expand_depthwise``, as expand_depthwise_layout.cuh chooses them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ....ir.device import Device
from ....ir.workload import Workload
from ..kernel import ceil_div


class Limit(NamedTuple):
    """Pixels of a chunk of the input at most, and channels of a block."""

    pixels: int
    columns: int

    @property
    def units(self) -> int:
        """Strips of a block: a lane has two channels of one."""
        return _THREADS // (self.columns // 2)


#: As ``kExpandTiles`` in expand_depthwise_library.cuh.
LIMITS = tuple(Limit(pixels, columns) for columns in (64, 48) for pixels in (64, 128, 192, 256))
#: Columns of a strip.
STRIP = 4
_THREADS, _MOST_BOX = 128, 256
#: Bytes of shared memory of a block and of an SM.
_MOST_SHARED, _OF_SM = 226 << 10, 227 << 10
#: Blocks that the registers of an SM hold, by filter.
_MOST_RESIDENT = {3: 4, 5: 3}


@dataclasses.dataclass(frozen=True)
class ExpandTile:
    """``ExpandTile`` of expand_depthwise_layout.cuh.

    columns  channels of a block
    images   of which it has outputs
    width    columns of outputs, in strips
    height   rows of outputs
    pitch    columns of its input
    rows     of a chunk of its input
    across   tiles side by side
    down     tiles on top of each other
    groups   of 64 pixels of a chunk
    """

    columns: int
    images: int
    width: int
    height: int
    pitch: int
    rows: int
    across: int
    down: int
    groups: int

    @property
    def strips(self) -> int:
        """Strips of a row of outputs."""
        return ceil_div(self.width, STRIP)

    def count(self, w: Workload) -> int:
        """Tiles of all images and channels."""
        images = ceil_div(w.n, self.images)
        return images * self.across * self.down * ceil_div(w.k, self.columns)

    def cost(self, w: Workload) -> int:
        """Instructions of a thread, roughly."""
        stride = w.stride[0]
        window = (STRIP - 1) * stride + w.r
        high = (self.height - 1) * stride + w.r
        chunks = ceil_div(min(high, w.h), self.rows) * (self.groups * 160 + 80)
        return 300 + chunks + high * (10 + 4 * window + 8 * w.taps // stride) + self.height * 40


def shared_bytes(w: Workload, columns: int, groups: int) -> int:
    """Shared memory of a block: pixels, weights, wide pixels, filter, bias and barriers."""
    assert w.expansion is not None, w.key
    slabs, pixels = ceil_div(w.expansion.channels, 64), 64 * groups
    narrow = slabs * (pixels + columns) * 128
    wide = pixels * (2 * columns + 16)
    return 1024 + narrow + wide + (w.taps + 1) * 4 * columns + 16


def fits(w: Workload, limit: Limit) -> bool:
    """Return whether shared memory holds a chunk of so many pixels."""
    return shared_bytes(w, limit.columns, limit.pixels // 64) <= _MOST_SHARED


def resident(w: Workload, columns: int, groups: int) -> int:
    """Blocks that an SM holds."""
    shared = shared_bytes(w, columns, groups) + 1024
    return max(1, min(_MOST_RESIDENT[w.r], _OF_SM // shared))


def tile_of(w: Workload, limit: Limit, device: Device) -> ExpandTile | None:
    """The tile within a limit that takes the least time; None where there is none."""
    together = resident(w, limit.columns, limit.pixels // 64) * device.sm_count
    columns = ceil_div(w.k, limit.columns)
    best: tuple[int, ExpandTile] | None = None
    for width in range(limit.units * STRIP, 0, -1):
        images = 1
        while images * ceil_div(width, STRIP) <= limit.units and (images == 1 or images <= w.n):
            side = ceil_div(w.n, images) * ceil_div(w.q, width)
            for count in (1, 2, 3, 4, min(w.p, together // (side * columns))):
                tile = _completed(w, limit, images, width, count) if count > 0 else None
                if tile is None:
                    continue
                cost = ceil_div(side * tile.down * columns, together) * tile.cost(w)
                if best is None or cost < best[0]:
                    best = cost, tile
            images *= 2
    return best[1] if best is not None else None


def _completed(w: Workload, limit: Limit, images: int, width: int, count: int) -> ExpandTile | None:
    across = ceil_div(w.q, width)
    pitch = min(w.w, (width - 1) * w.stride[1] + w.s)
    most = min(_MOST_BOX, limit.pixels // (images * pitch))
    if most < 1 or pitch > _MOST_BOX or ceil_div(w.q, across) < width:
        return None
    down = ceil_div(w.p, ceil_div(w.p, count))
    height = ceil_div(w.p, down)
    read = min(w.h, (height - 1) * w.stride[0] + w.r)
    rows = ceil_div(read, ceil_div(read, most))
    groups = ceil_div(images * rows * pitch, 64)
    return ExpandTile(limit.columns, images, width, height, pitch, rows, across, down, groups)

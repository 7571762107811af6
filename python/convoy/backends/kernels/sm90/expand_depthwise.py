"""``expand_depthwise`` of ``codegen/sm90``: a 1x1 convolution and the depthwise convolution of its
result; libraries, rules and launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....ir.device import Device
from ....ir.dtypes import HALF_DTYPES
from ....ir.workload import Workload
from . import expand_tiles
from .expand_tiles import LIMITS, ExpandTile
from .source import DtypeLibrary

#: Activations: a swizzle is a place in :data:`.expand_tiles.LIMITS` and two in this.
CHOSEN = ("none", "relu", "clip", "silu", "hardswish", "gelu")
FILTERS = (3, 5)
_MOST_PIXELS, _MOST_CHANNELS = (1 << 30) - 1, 1 << 20


class ExpandDepthwiseKernel(DtypeLibrary):
    """A library for all sizes, filters and activations of a dtype."""

    family: ClassVar[str] = "expand_depthwise"
    template: ClassVar[str] = "ExpandDepthwise"
    export: ClassVar[str] = "CONVOY_EXPORT_EXPANSION(Kernel)"


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    assert w.expansion is not None, w.key
    if w.expansion.channels % 8:
        yield f"{w.expansion.channels} channels", "pad them to a multiple of 8"
    if w.dilation != (1, 1):
        yield f"dilation {w.dilation[0]}x{w.dilation[1]}", ""
    if w.r != w.s or w.r not in FILTERS:
        yield f"a filter of {w.r}x{w.s}: only 3x3 and 5x5", ""
        return
    if w.stride not in ((1, 1), (2, 2)):
        yield f"stride {w.stride[0]}x{w.stride[1]}: only 1x1 and 2x2", ""
        return
    if max(w.padding) >= w.r:
        yield f"padding {w.padding}: windows outside of the image", ""
        return
    for epilogue in (w.expansion.epilogue, w.epilogue):
        if epilogue.activation not in CHOSEN:
            yield f"activation {epilogue.activation}", "leave it outside the subgraph"
    if w.pixels > _MOST_PIXELS or max(w.k, w.expansion.channels) > _MOST_CHANNELS:
        yield f"{w.pixels} pixels, {w.k} channels: too large", "split the batch"
        return
    if w.dtype in HALF_DTYPES and not any(expand_tiles.fits(w, limit) for limit in LIMITS):
        yield f"{w.expansion.channels} channels: their weights exceed shared memory", ""


def swizzles(w: Workload, device: Device) -> list[int]:
    """The launches of a workload, best guess first."""
    assert w.expansion is not None, w.key
    activations = (w.epilogue.activation, w.expansion.epilogue.activation)
    depthwise, expand = map(CHOSEN.index, activations)
    found = _tiles(w, device)
    return [
        (place * len(CHOSEN) + depthwise) * len(CHOSEN) + expand
        for place in sorted(found, key=lambda place: guess_us(found[place], w, device))
    ]


def _tiles(w: Workload, device: Device) -> dict[int, ExpandTile]:
    """The tiles by their places in :data:`.expand_tiles.LIMITS`, of equal ones the first."""
    found: dict[ExpandTile, int] = {}
    for place, limit in enumerate(LIMITS):
        tile = expand_tiles.tile_of(w, limit, device) if expand_tiles.fits(w, limit) else None
        if tile is not None:
            found.setdefault(tile, place)
    return {place: tile for tile, place in found.items()}


#: Microseconds of a launch, and instructions of a thread for a microsecond of one block of an SM.
_LAUNCH_US, _RATE = 2.0, 1.7e3


def guess_us(tile: ExpandTile, w: Workload, device: Device) -> float:
    """Time of a launch that starts when its predecessor has ended: four schedulers, each of which
    issues for a warp of every block of the SM."""
    held = expand_tiles.resident(w, tile.columns, tile.groups)
    tiles = tile.count(w)
    waves = -(-tiles // (held * device.sm_count))
    at_once = min(held, -(-tiles // device.sm_count))
    return _LAUNCH_US + waves * max(3.0, 1.4 * at_once) * tile.cost(w) / _RATE

"""``image_conv`` of ``codegen/sm90``: the first convolution of a network from its image to the
maxima of its result; libraries, rules and launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....ir.activation import ACTIVATIONS
from ....ir.device import Device
from ....ir.workload import Workload
from .source import DtypeLibrary

#: Channels of the filter.
CHANNELS = 4
#: Sums of a tile, and activations: a swizzle is a place in each.
TILES = (256, 128)
CHOSEN = tuple(name for name in ACTIVATIONS if name != "tanh")
#: Of shared memory: as ``kMostImageShared``, and what aligns it.
_MOST_SHARED, _ALIGNMENT = 226 << 10, 1024
_MOST_TAPS, _MOST_WINDOW = 1024, 16


class ImageConvKernel(DtypeLibrary):
    """A library for all sizes, activations and inputs of a dtype."""

    family: ClassVar[str] = "image_conv"
    template: ClassVar[str] = "ImageConv"
    export: ClassVar[str] = "CONVOY_EXPORT_STEM(Kernel)"


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    stem = w.stem
    assert stem is not None, w.key
    if w.c != CHANNELS:
        yield f"C = {w.c}: pixels of {CHANNELS} channels", "pad C to 4"
    if w.epilogue.activation not in CHOSEN:
        yield f"activation {w.epilogue.activation}", "leave it outside the subgraph"
    if stem.dtype not in ("float32", w.dtype):
        yield f"an image of {stem.dtype}, a filter of {w.dtype}", "cast it outside the subgraph"
    if w.taps > _MOST_TAPS or max(stem.window) > _MOST_WINDOW or max(stem.stride) > _MOST_WINDOW:
        yield f"{w.taps} taps, a pool of {stem.window}: too large", "leave the pool outside"
        return
    if w.n * w.p * w.q >= 1 << 30 or w.h * w.w >= 1 << 28:
        yield "more than 2^30 results, or 2^28 pixels of an image", "split the batch"
    if w.k > 1 << 16:
        yield f"K = {w.k}", ""
        return
    if not tiles(w):
        yield f"{w.r}x{w.s} to {w.k} channels: filter and tile exceed shared memory", ""


def tiles(w: Workload) -> list[int]:
    """Places in :data:`TILES` of those of which at least one result fits."""
    stem = w.stem
    assert stem is not None, w.key
    window = stem.window if stem.pools else (1, 1)
    columns = 32 if w.k <= 32 else 64
    filters = -(-w.k // columns) * columns
    pixels = 1
    for sums, stride, dilation, taps in zip(window, w.stride, w.dilation, (w.r, w.s), strict=True):
        pixels *= (sums - 1) * stride + (taps - 1) * dilation + 1
    # For 16 taps the weights and where their pixels are; the bias; of two tiles the pixels that one
    # result reads; a pixel of zeros and barriers.
    groups = -(-w.taps // 16)
    shared = groups * 128 * (filters + 1) + 4 * filters + 2 * 8 * pixels + 48 + _ALIGNMENT
    return [
        place
        for place, sums in enumerate(TILES)
        if shared + sums * (2 * columns + 16) <= _MOST_SHARED and window[0] * window[1] <= sums
    ]


def swizzles(w: Workload, device: Device) -> list[int]:
    """The launches of a workload, best guess first: large tiles where each SM has two of them."""
    activation = CHOSEN.index(w.epilogue.activation)
    few = w.pixels < 2 * TILES[0] * device.sm_count
    return [place * len(CHOSEN) + activation for place in sorted(tiles(w), reverse=few)]

"""``bottleneck`` of ``codegen/sm90``: a convolution and one or two 1x1 convolutions behind it;
libraries, rules and launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....ir.device import Device
from ....ir.workload import Workload
from .bottleneck_blocks import BLOCKS, bottleneck_of
from .source import DtypeLibrary

#: Activations: a swizzle is a place in :data:`.bottleneck_blocks.BLOCKS` and three in this.
CHOSEN = ("none", "relu", "clip")
#: Most results of the first and of the third convolution.
MOST_NARROW = 128
_MOST_PIXELS, _MOST_CHANNELS = (1 << 30) - 1, 1 << 20


class BottleneckKernel(DtypeLibrary):
    """A library for all sizes, filters and activations of a dtype."""

    family: ClassVar[str] = "bottleneck"
    template: ClassVar[str] = "Bottleneck"
    export: ClassVar[str] = "CONVOY_EXPORT_BOTTLENECK(Kernel)"


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    expand, reduce = bottleneck_of(w).expand, bottleneck_of(w).reduce
    for name, channels in (("C", w.c), ("expand", expand), ("reduce", reduce)):
        if channels % 8:
            yield f"{name} = {channels}", "pad it to a multiple of 8"
    for name, channels in (("K", w.k), ("reduce", reduce)):
        if channels > MOST_NARROW:
            yield f"{name} = {channels}: at most {MOST_NARROW}", ""
    for activation in activations(w):
        if activation not in CHOSEN:
            yield f"activation {activation}", "leave it outside the subgraph"
    if w.pixels > _MOST_PIXELS or max(w.c, expand) > _MOST_CHANNELS:
        yield f"{w.pixels} pixels, {w.c} channels: too large", "split the batch"
        return
    if not any(block.fits(w) for block in BLOCKS):
        least = min(block.shared_bytes(w) for block in BLOCKS)
        yield f"weights and pixels of {least} bytes exceed shared memory", ""


def activations(w: Workload) -> tuple[str, str, str]:
    """Return the activations of the first, second and third convolution."""
    bottleneck = bottleneck_of(w)
    epilogues = (w.epilogue, bottleneck.expand_epilogue, bottleneck.reduce_epilogue)
    first, second, third = (epilogue.activation for epilogue in epilogues)
    return first, second, third


def swizzles(w: Workload, device: Device) -> list[int]:
    """The launches of a workload, best guess first."""
    chosen = 0
    for activation in reversed(activations(w)):
        chosen = chosen * len(CHOSEN) + CHOSEN.index(activation)
    places = [place for place, block in enumerate(BLOCKS) if block.fits(w)]
    places.sort(key=lambda place: BLOCKS[place].guess_us(w, device))
    return [place * len(CHOSEN) ** 3 + chosen for place in places]

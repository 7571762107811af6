"""``squeeze_excite`` of ``codegen/sm90``: gates of an image's channels and the image times these;
libraries, rules and launches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ....ir.device import Device
from ....ir.squeeze_excite import block_of
from ....ir.workload import Workload
from .source import DtypeLibrary
from .squeeze_excite_clusters import CLUSTERS, MOST_SHARED, cluster_of

#: Activations of the first GEMM, of the gates and of y. A swizzle is a place in each of these,
#: the first one fastest, and in :data:`.squeeze_excite_clusters.CLUSTERS`.
CHOSEN = (
    ("none", "relu", "clip", "silu", "hardswish", "gelu"),
    ("sigmoid", "clip"),
    ("none", "relu", "clip"),
)
#: Swizzles of a place: one for all activations together.
CHOICES = math.prod(map(len, CHOSEN))
_MOST_PIXELS, _MOST_CHANNELS, _MOST_SQUEEZED = (1 << 24) - 1, 1 << 16, 1 << 14
_MOST_BLOCKS = (1 << 30) - 1


class SqueezeExciteKernel(DtypeLibrary):
    """A library for all sizes and activations of a dtype."""

    family: ClassVar[str] = "squeeze_excite"
    template: ClassVar[str] = "SqueezeExcite"
    export: ClassVar[str] = "CONVOY_EXPORT_SQUEEZE_EXCITE(Kernel)"


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    if w.c % 8:
        yield f"C = {w.c}", "pad it to a multiple of 8"
    names = ("the first GEMM", "the gates", "the result")
    for name, activation, chosen in zip(names, activations(w), CHOSEN, strict=True):
        if activation not in chosen:
            yield f"activation {activation} of {name}", "leave it outside the subgraph"
    squeezed = block_of(w).channels
    if w.h * w.w > _MOST_PIXELS or w.c > _MOST_CHANNELS or squeezed > _MOST_SQUEEZED:
        yield f"{w.h}x{w.w} pixels, {w.c} and {squeezed} channels: too large", ""
    elif not _places(w):
        least = min(cluster_of(w, blocks).shared_bytes for blocks in CLUSTERS)
        if least > MOST_SHARED:
            yield f"sums and weights of {least} bytes exceed shared memory", ""
        else:
            yield f"{w.n} images of {w.c} channels: too large", "split the batch"


def activations(w: Workload) -> tuple[str, str, str]:
    """Return the activations of the first GEMM, of the gates and of y."""
    block = block_of(w)
    epilogues = (block.squeeze_epilogue, block.gate_epilogue, w.epilogue)
    squeeze, gate, y = (epilogue.activation for epilogue in epilogues)
    return squeeze, gate, y


def swizzles(w: Workload, device: Device) -> list[int]:
    """The launches of a workload, best guess first."""
    chosen = 0
    for activation, known in reversed([*zip(activations(w), CHOSEN, strict=True)]):
        chosen = chosen * len(known) + known.index(activation)
    places = sorted(_places(w), key=lambda i: cluster_of(w, CLUSTERS[i]).guess_us(w, device))
    return [place * CHOICES + chosen for place in places]


def _places(w: Workload) -> list[int]:
    """Places in :data:`.squeeze_excite_clusters.CLUSTERS` of those that the kernel takes."""
    return [
        place
        for place, blocks in enumerate(CLUSTERS)
        if w.n * blocks <= _MOST_BLOCKS and cluster_of(w, blocks).fits
    ]

"""The layers of a network with their times, heaviest first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from .timeline import Timeline


@dataclass(frozen=True)
class Layer:
    """A layer, or a kernel of TVM between two, and its time in one run of the network.

    Attributes:
        name: The model's own name of the layer where that is known.
        backend: What runs it.
        us: Microseconds, measured where that was done, otherwise predicted.
        share: Part of the sum over all layers, from 0 to 1. Layers on different streams overlap,
            so that the sum may be longer than the run.
        predicted_us: Microseconds before it ran; None if nothing was predicted.
        measured: Whether ``us`` was measured.
        kernel: The kernel in words.
    """

    name: str
    backend: str
    us: float
    share: float
    predicted_us: float | None = None
    measured: bool = False
    kernel: str = ""


def heaviest(layers: Sequence[Layer]) -> list[Layer]:
    """Layers with their shares, heaviest first."""
    total = sum(layer.us for layer in layers) or 1.0
    ordered = sorted(layers, key=lambda layer: -layer.us)
    return [dataclasses.replace(layer, share=layer.us / total) for layer in ordered]


def of_timelines(lines: Sequence[Timeline]) -> list[Layer]:
    """Layers of the predicted run and, if there is one, the measured run of one schedule."""
    predicted, measured = lines[0], lines[1] if len(lines) > 1 else None
    found = []
    for i, span in enumerate(predicted.spans):
        ran = measured.spans[i].duration_us if measured is not None else None
        us = span.duration_us if ran is None else ran
        found.append(
            Layer(span.label, span.backend, us, 0.0, span.duration_us, ran is not None, span.kernel)
        )
    return heaviest(found)

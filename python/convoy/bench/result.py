"""Results of a benchmark as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ..report.layers import Layer

RESULT_FORMAT = 1


@dataclass(frozen=True)
class Row:
    """One system at one batch size.

    Attributes:
        system: "convoy", or a peer: "torch", "torch.compile", "onnxruntime".
        batch: Size of the first dimension of the first input.
        precision: As it was asked for, or the model's own for peers.
        p50_ms, p99_ms: Of one synchronized call, inputs in place.
        per_s: Items of a batch that calls enqueued back to back finish in a second.
        predicted_ms: Of the same before anything ran, from the times of its kernels.
        device_ms: Median of a replay of the whole network as a CUDA graph; None on the CPU.
        memory_bytes: By how much the device's used memory grew (resident memory on the CPU).
        build_s: Seconds to build, or to load what was built before.
        samples: Synchronized calls behind the percentiles.
        error: Relative L2 error of the outputs against Convoy's, for peers.
        layers: Heaviest first.
        skipped: Why there are no times.
    """

    system: str
    batch: int
    precision: str = ""
    p50_ms: float | None = None
    p99_ms: float | None = None
    per_s: float | None = None
    device_ms: float | None = None
    predicted_ms: float | None = None
    memory_bytes: int | None = None
    build_s: float | None = None
    samples: int = 0
    error: float | None = None
    layers: tuple[Layer, ...] = ()
    skipped: str = ""


@dataclass(frozen=True)
class Result:
    """A benchmark of one model: its rows in the order of measurement. ``about`` has facts of the
    machine and the versions of the software."""

    model: str
    target: str
    device: str
    rows: tuple[Row, ...]
    about: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"format": RESULT_FORMAT, **dataclasses.asdict(self)}

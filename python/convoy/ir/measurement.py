"""Kernel time, host time and end-to-end time of a candidate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..errors import InvalidOption
from . import fields as checks


@dataclass(frozen=True)
class Measurement:
    """Times of one candidate on one device: medians in microseconds, with spreads.

    A spread is half the distance between the 10th and the 90th percentile.

    Attributes:
        kernel_us: Device time of one launch with a warm L2 cache, from 4 to 20 launches (about a
            millisecond) in a replayed CUDA graph.
        cold_us: The same with the L2 cache flushed before every launch; None if not measured.
        enqueue_us: Host time to enqueue one launch.
        e2e_us: Time of one synchronized call through the module.
        samples: Number of samples; 0 for an estimate.
        error: Relative L2 error against float64; None if not checked.
        failure: The reason why the measurement failed; all times are then None.
        chained_us: Device time of one launch as a link of a chain: launched programmatically behind
            launches of its own kind, with constant weights. None for kernels that start only when
            their predecessor has ended, and if not measured.
    """

    kernel_us: float | None = None
    kernel_spread_us: float | None = None
    cold_us: float | None = None
    enqueue_us: float | None = None
    enqueue_spread_us: float | None = None
    e2e_us: float | None = None
    e2e_spread_us: float | None = None
    samples: int = 0
    error: float | None = None
    failure: str = ""
    chained_us: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the candidate ran and was timed."""
        return not self.failure and self.kernel_us is not None

    @property
    def estimated(self) -> bool:
        """Whether it is an estimate of a cost model, without samples."""
        return self.ok and not self.samples

    def to_json(self) -> dict[str, object]:
        """Return the fields that are known, for JSON."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v not in (None, "")}

    @classmethod
    def from_json(cls, data: object) -> Measurement:
        """Inverse of :meth:`to_json`; raises InvalidOption naming the field."""
        return checks.made(cls, data, _FIELDS, "measurement", InvalidOption)


#: Up to eleven days: sums of times stay finite.
_TIME = checks.optional(checks.number(0.0, 1e12))
_FIELDS: dict[str, checks.Check] = {
    "kernel_us": checks.optional(checks.number(1e-3, 1e12)),  # no launch takes less than 1 ns
    "kernel_spread_us": _TIME,
    "cold_us": _TIME,
    "enqueue_us": _TIME,
    "enqueue_spread_us": _TIME,
    "e2e_us": _TIME,
    "e2e_spread_us": _TIME,
    "samples": checks.integer(),
    "error": checks.optional(checks.number(0.0, 1e300)),
    "failure": checks.text(1 << 16),
    "chained_us": _TIME,
}

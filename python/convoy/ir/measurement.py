"""Kernel time, host time and end-to-end time of a candidate: they disagree on what is best."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOption
from . import fields as checks


@dataclass(frozen=True)
class Measurement:
    """Times of one candidate on one device, in microseconds; medians, with spreads.

    kernel_us   device time of one launch: 4 to 20 launches (about a millisecond) captured in one
                CUDA graph, replayed; warm L2 cache.
    cold_us     the same with the L2 cache flushed before every launch (None when not taken).
    enqueue_us  host time to enqueue one launch.
    e2e_us      one synchronised call through the module.
    Spreads are half the distance between the 10th and the 90th percentile.
    error       relative L2 error against float64 (None when not checked).
    failure     why nothing could be measured; all times are then None.
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

    @property
    def ok(self) -> bool:
        return not self.failure and self.kernel_us is not None

    @property
    def estimated(self) -> bool:
        """Whether a cost model made it up: nothing was sampled."""
        return self.ok and not self.samples

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v not in (None, "")}

    @classmethod
    def from_json(cls, data: Any) -> Measurement:
        """Inverse of :meth:`to_json`; raises InvalidOption naming the field."""
        return cls(**checks.checked(data, _FIELDS, "measurement", InvalidOption))


#: Up to eleven days: sums of times stay finite.
_TIME = checks.optional(checks.number(0.0, 1e12))
_FIELDS: dict[str, checks.Check] = {
    "kernel_us": checks.optional(checks.number(1e-3, 1e12)),  # nothing takes less than 1 ns
    "kernel_spread_us": _TIME,
    "cold_us": _TIME,
    "enqueue_us": _TIME,
    "enqueue_spread_us": _TIME,
    "e2e_us": _TIME,
    "e2e_spread_us": _TIME,
    "samples": checks.integer(),
    "error": checks.optional(checks.number(0.0, 1e300)),
    "failure": checks.text(1 << 16),
}

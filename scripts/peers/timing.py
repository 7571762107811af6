"""The timing protocol of whole networks: every system is measured by this one routine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one inference.

    ``ms`` is the median time of one call when calls are enqueued back to back (throughput),
    ``latency_ms`` the median of one call followed by a synchronisation. Spreads are half the
    distance between the 10th and the 90th percentile.
    """

    ms: float
    spread_ms: float
    latency_ms: float
    latency_spread_ms: float
    samples: int

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def _half_spread(values: list[float]) -> float:
    ordered = sorted(values)
    low = ordered[int(0.1 * (len(ordered) - 1))]
    high = ordered[round(0.9 * (len(ordered) - 1))]
    return (high - low) / 2


def measure(
    call: Callable[[], object], synchronize: Callable[[], None], seconds: float = 1.0
) -> Timing:
    """Time ``call``, which enqueues one inference; ``synchronize`` waits for the device."""
    for _ in range(5):
        call()
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    one = max(time.perf_counter() - start, 1e-5)
    burst = max(3, min(50, int(0.02 / one)))
    rounds = max(10, min(100, int(seconds / (one * (burst + 1)))))
    throughput, latency = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(burst):
            call()
        synchronize()
        throughput.append((time.perf_counter() - start) / burst * 1e3)
        start = time.perf_counter()
        call()
        synchronize()
        latency.append((time.perf_counter() - start) * 1e3)
    return Timing(
        ms=statistics.median(throughput),
        spread_ms=_half_spread(throughput),
        latency_ms=statistics.median(latency),
        latency_spread_ms=_half_spread(latency),
        samples=rounds,
    )

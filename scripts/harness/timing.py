"""The timing protocol of whole networks: every system is measured by this one routine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Run:
    """One inference of a system: ``call`` enqueues it, ``synchronize`` waits for the device."""

    call: Callable[[], object]
    synchronize: Callable[[], object]


@dataclass
class Timing:
    """Samples in milliseconds of one inference.

    ``rounds`` are samples of throughput (the mean of calls enqueued back to back), one list for
    each round; ``latency`` those of single calls followed by a synchronization.
    """

    rounds: list[list[float]] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)

    def samples(self, start: int = 0, step: int = 1) -> list[float]:
        """Throughput samples of every ``step``-th round."""
        return [ms for each in self.rounds[start::step] for ms in each]

    def to_json(self) -> dict[str, Any]:
        """Medians ``ms`` and ``latency_ms``, and half the distances from the 10th to the 90th
        percentile."""
        samples = self.samples()
        return {
            "ms": statistics.median(samples),
            "spread_ms": half_spread(samples),
            "latency_ms": statistics.median(self.latency),
            "latency_spread_ms": half_spread(self.latency),
            "samples": len(samples),
        }

    def halves(self) -> dict[str, float]:
        """Median and spread of the even rounds, and the median of the odd ones: to choose by the
        first and to report the second."""
        even = self.samples(0, 2)
        return {
            "even_ms": statistics.median(even),
            "even_spread_ms": half_spread(even),
            "odd_ms": statistics.median(self.samples(1, 2)),
        }


def half_spread(values: list[float]) -> float:
    """Half the distance from the 10th to the 90th percentile."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return (ordered[round(0.9 * last)] - ordered[int(0.1 * last)]) / 2


def measure(run: Run, seconds: float = 1.0) -> Timing:
    """Time one system; see :func:`measure_in_turns`."""
    return measure_in_turns({"": run}, seconds)[""]


def measure_in_turns(
    runs: Mapping[Name, Run],
    seconds: float = 1.0,
    rounds: int = 6,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, Timing]:
    """Time systems in turns, so that a drifting clock rate meets all of them.

    Args:
        runs: Systems by name, or by any key.
        seconds: Time for each system.
        rounds: Times that each system has its turn; every other round goes backwards.
        clock: Seconds since any time.
    """
    plan = {name: _samples(run, seconds / rounds, clock) for name, run in runs.items()}
    found = {name: Timing() for name in runs}
    for i in range(rounds):
        for name in list(runs)[:: -1 if i % 2 else 1]:
            run, (samples, burst) = runs[name], plan[name]
            run.call()
            run.synchronize()
            throughput = []
            for _ in range(samples):
                throughput.append(_timed(run, burst, clock))
                found[name].latency.append(_timed(run, 1, clock))
            found[name].rounds.append(throughput)
    return found


def _samples(run: Run, seconds: float, clock: Callable[[], float]) -> tuple[int, int]:
    """Samples for one turn of so many seconds, and the calls of a sample, after a warm-up."""
    for _ in range(5):
        run.call()
    run.synchronize()
    one = max(_timed(run, 1, clock), 1e-2)  # ms
    burst = max(3, min(50, int(20 / one)))
    return max(2, min(17, int(1e3 * seconds / (one * (burst + 1))))), burst


def _timed(run: Run, number: int, clock: Callable[[], float]) -> float:
    """Milliseconds of one of ``number`` calls enqueued back to back."""
    start = clock()
    for _ in range(number):
        run.call()
    run.synchronize()
    return (clock() - start) / number * 1e3

"""The expected gain of a measurement, which decides what a budget is spent on.

The logarithm of a candidate's time is normally distributed around its estimate, independently of
the other candidates except for an error that all estimates of a workload share, which its
measurements correct. A measurement gains time if the candidate turns out to be faster than what
would be selected without it or, for the candidate that would be selected, slower than the next one.

Over the shipped records (``scripts/bench_budget.py``: each network's own records hidden), the sums
of the networks' kernels are 3.6% above the best after 50 measurements of a network at one batch
size and 2.4% after a hundred (geometric means). They are 4.4% and 2.4% if the best estimate of each
workload is measured, then the first guess of each backend, the largest workloads first, and all
workloads at least once: 61 and 98 measurements on average. The constants were chosen on the same
records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import device_us
from ..ir.workload import Workload
from .nearest import least_us

#: Standard deviation of the logarithm of a time around its estimate.
SPREAD = 0.6
#: Measurements that correct the shared error of a workload's estimates by half.
_HALF = 2.0
#: Where nothing is recorded: time of a backend's first guess over the minimum, and the logarithm
#: that is added for each later one, up to the last that counts.
_FIRST_GUESS, _LATER, _LAST = 3.0, 0.02, 20
#: Times over the minimum from which the best of a workload without estimates counts as unknown.
_SLOW = 5.0


class Belief:
    """What is measured and estimated of the candidates of one workload.

    Args:
        left: Candidates that may be measured, with their estimates.
        count: Operations of the network that may run as this workload.
        required: Whether one candidate has to be measured, since no estimate would be used.

    Attributes:
        required: The same, or True if nothing is known of any candidate.
    """

    def __init__(
        self,
        workload: Workload,
        left: Mapping[Candidate, Measurement | None],
        device: Device,
        count: int = 1,
        required: bool = False,
    ) -> None:
        self.workload, self.required = workload, required or not any(left.values())
        self._count, self._least_us = count, least_us(workload, device)
        self._left = {
            candidate: self._log(candidate, estimate) for candidate, estimate in left.items()
        }
        self._measured: list[float] = []
        self._errors: list[float] = []

    def _log(self, candidate: Candidate, estimate: Measurement | None) -> float:
        if estimate is not None:
            return math.log(device_us(estimate))
        later = _LATER * min(candidate.priority, _LAST)
        return math.log(_FIRST_GUESS * self._least_us) + later

    def add(
        self, candidate: Candidate, found: Measurement, estimate: Measurement | None = None
    ) -> None:
        """Add a measurement: of a candidate that was left, or of one with this estimate."""
        log = self._left.pop(candidate, None)
        if not found.ok or not device_us(found):
            return
        self._measured.append(math.log(device_us(found)))
        if log is None and estimate is not None:
            log = self._log(candidate, estimate)
        if log is not None:
            self._errors.append(self._measured[-1] - log)

    @property
    def blind(self) -> bool:
        """Whether a candidate has to be measured whatever the budget: the first one, and further
        ones that are expected to save half of a time far above the minimum."""
        if not self.required or not self._left or not self._measured:
            return self.required and bool(self._left)
        slow = min(self._measured) > math.log(_SLOW * self._least_us)
        return slow and self.next()[0] > self.best_us / 2

    @property
    def assumed(self) -> Candidate | None:
        """The candidate that estimates select; None if one is measured."""
        return (
            None
            if self._measured
            else min(self._left, key=lambda c: (self._left[c], c), default=None)
        )

    @property
    def best_us(self) -> float:
        """Time of the network's operations of this workload by the best candidate known."""
        return self._count * math.exp(min(self._measured or self._expected().values(), default=0.0))

    def next(self) -> tuple[float, Candidate | None]:
        """The largest expected gain of a measurement, in microseconds, and its candidate."""
        expected = self._expected()
        if not expected:
            return 0.0, None
        first, second = sorted([*expected.values(), math.inf])[:2]

        def gain(log: float) -> float:
            if self._measured:
                return _faster_us(min(self._measured), log)
            if log > first:
                return _faster_us(first, log)
            return _slower_us(second, log) if second < math.inf else 0.0

        best = min(expected, key=lambda candidate: (-gain(expected[candidate]), candidate))
        return self._count * gain(expected[best]), best

    def _expected(self) -> dict[Candidate, float]:
        shared = sum(self._errors) / (len(self._errors) + _HALF)
        return {candidate: log + shared for candidate, log in self._left.items()}


def _faster_us(known: float, expected: float) -> float:
    """Mean of the microseconds by which a time is below a known one, of both the logarithms."""
    distance = (known - expected) / SPREAD
    return math.exp(known) * _normal(distance) - _mean_us(expected) * _normal(distance - SPREAD)


def _slower_us(known: float, expected: float) -> float:
    """Mean of the microseconds by which a time is above a known one."""
    return _mean_us(expected) - math.exp(known) + _faster_us(known, expected)


def _mean_us(expected: float) -> float:
    return math.exp(expected + SPREAD**2 / 2)


def _normal(x: float) -> float:
    """The normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2

"""The expected gain of a measurement, which decides what a budget is spent on.

Times are those in the best case: whether a kernel that can be a link of a chain is one depends on
what its neighbours use. The logarithm of a candidate's time is normally distributed around its
estimate, corrected by what measurements say of its error (:mod:`.estimate_errors`). A measurement
gains time if the candidate turns out to be faster than what would be selected without it or, for
the candidate that would be selected, slower than the next one. In the end one candidate of each
workload is measured whatever the budget: an estimate may be wrong by ten times, of an engine that
rearranges tensors.

Over the shipped records (``scripts/bench_budget.py``: each network's own records hidden), the sums
of the networks' kernels are 4.0% above the best after 50 measurements of a network at one batch
size, and 7.7% without any records (geometric means).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import best_case_us
from ..ir.workload import Workload
from .estimate_errors import Errors, Groups, groups_of
from .nearest import least_us

#: Where nothing is recorded: time of a backend's first guess over the minimum, and the logarithm
#: that is added for each later one, up to the last that counts.
_FIRST_GUESS, _LATER, _LAST = 3.0, 0.02, 20
#: Times over the minimum from which the best of a workload without estimates counts as unknown.
_SLOW = 5.0
#: Candidates that are built ahead together while a budget lasts.
AT_ONCE = 16


class Belief:
    """Measurements and estimates of the candidates of one workload.

    Args:
        left: Candidates that may be measured, with their estimates.
        count: Operations of the network that may run as this workload.
        errors: The errors of estimates that are known, of all workloads.

    Attributes:
        unestimated: Whether there is no estimate of any candidate.
    """

    def __init__(
        self,
        workload: Workload,
        left: Mapping[Candidate, Measurement | None],
        device: Device,
        count: int = 1,
        errors: Errors | None = None,
    ) -> None:
        self.workload, self.unestimated = workload, not any(left.values())
        self._count, self._least_us = count, least_us(workload, device)
        self._left = {
            candidate: self._log(candidate, estimate) for candidate, estimate in left.items()
        }
        self._groups: dict[Candidate, Groups] = {c: groups_of(workload, c) for c in left}
        self._measured: list[float] = []
        self._errors = Errors() if errors is None else errors
        self._known: tuple[int, dict[Candidate, tuple[float, float]]] = (-1, {})

    def _log(self, candidate: Candidate, estimate: Measurement | None) -> float:
        if estimate is not None:
            return math.log(best_case_us(estimate))
        later = _LATER * min(candidate.priority, _LAST)
        return math.log(_FIRST_GUESS * self._least_us) + later

    def add(
        self, candidate: Candidate, found: Measurement, estimate: Measurement | None = None
    ) -> None:
        """Add a measurement: of a candidate that was left, or of one with this estimate."""
        log = self._left.pop(candidate, None)
        self._known = (-1, {})
        if not found.ok or not best_case_us(found):
            return
        self._measured.append(math.log(best_case_us(found)))
        if log is None and estimate is not None:
            log = self._log(candidate, estimate)
        if log is not None:
            groups = self._groups.get(candidate) or groups_of(self.workload, candidate)
            self._errors.add(groups, self._measured[-1] - log)

    @property
    def blind(self) -> bool:
        """Whether a candidate has to be measured whatever the budget: the first one, and further
        ones that are expected to save half of a time far above the minimum."""
        if not self._left or not self._measured:
            return bool(self._left)
        slow = min(self._measured) > math.log(_SLOW * self._least_us)
        return slow and self.next()[0] > self.best_us / 2

    @property
    def best_us(self) -> float:
        """Time of the network's operations of this workload by the best candidate known."""
        expected = (log for log, _ in self._expected().values())
        return self._count * math.exp(min(self._measured or expected, default=0.0))

    def next(self) -> tuple[float, Candidate | None]:
        """The largest expected gain of a measurement, in microseconds, and its candidate."""
        expected = self._expected()
        if not expected:
            return 0.0, None
        if self._measured:
            known = min(self._measured)
            gains = {c: _faster_us(known, log, spread) for c, (log, spread) in expected.items()}
            best = min(gains, key=lambda candidate: (-gains[candidate], candidate))
            return self._count * gains[best], best
        best = _least(expected)
        if self.unestimated:
            return self.best_us, best
        first, spread = expected[best]
        others = [log for candidate, (log, _) in expected.items() if candidate != best]
        gain = _slower_us(min(others), first, spread) if others else 0.0
        return self._count * gain, best

    def _expected(self) -> dict[Candidate, tuple[float, float]]:
        """Mean and standard deviation of the logarithm of each candidate's time."""
        if self._known[0] != len(self._errors):
            found = {}
            for candidate, log in self._left.items():
                error, spread = self._errors.expected(self._groups[candidate])
                found[candidate] = log + error, spread
            self._known = len(self._errors), found
        return self._known[1]


def most_gain(
    beliefs: Sequence[Belief], least_us: float, all_of_them: bool
) -> list[tuple[Belief, Candidate]]:
    """Return up to AT_ONCE candidates to measure next, one of each workload: those without any
    estimate first, the others by expected gain.

    A workload counts where the gain exceeds ``least_us`` or a measurement is required
    (:attr:`Belief.blind`); without ``all_of_them`` only where it is required.
    """
    found = []
    for belief in beliefs:
        gain, candidate = belief.next()
        if candidate is not None and (belief.blind or (all_of_them and gain > least_us)):
            first = belief.blind and belief.unestimated
            found.append((not first, -gain, belief.workload.key, belief, candidate))
    found.sort(key=lambda item: item[:3])
    return [(belief, candidate) for *_, belief, candidate in found[:AT_ONCE]]


def _least(expected: Mapping[Candidate, tuple[float, float]]) -> Candidate:
    """The candidate with the least mean."""
    return min(expected, key=lambda candidate: (expected[candidate][0], candidate))


def _faster_us(known: float, expected: float, spread: float) -> float:
    """Mean of the microseconds by which a time is below a known one, of both the logarithms."""
    distance = (known - expected) / spread
    mean = math.exp(expected + spread**2 / 2)
    return math.exp(known) * _normal(distance) - mean * _normal(distance - spread)


def _slower_us(known: float, expected: float, spread: float) -> float:
    """Mean of the microseconds by which a time is above a known one."""
    mean = math.exp(expected + spread**2 / 2)
    return mean - math.exp(known) + _faster_us(known, expected, spread)


def _normal(x: float) -> float:
    """The normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2

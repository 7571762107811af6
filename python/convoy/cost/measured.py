"""Cost model that measures on this machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.defaults import QUICK_SAMPLES_MS, SAMPLES_MS
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..measure.gpu_lock import own_clock
from .builds_ahead import BuildsAhead
from .chained import as_link
from .estimate_errors import Errors
from .estimates import estimated
from .gain import Belief, most_gain
from .local_measurements import LocalMeasurements, Save
from .model import CostModel
from .recorded import RecordedCost
from .untimed_links import LEAST_GAIN_US, Link, untimed_links

#: Candidates that are measured before gains are computed again.
IN_TURN = 4
#: Measuring ends before the budget where the next measurement is expected to gain less than this
#: part of the network's time.
LEAST_GAIN = 1e-4
_log = logging.getLogger("convoy")


class MeasuredCost(CostModel):
    """Measures candidates on the GPU that is present; what the records hold is not measured again.

    Args:
        most: Candidates of one backend that are measured for a workload, recorded ones counted:
            its best guesses, by priority. None: all of them.
        budget: Seconds of measuring in all, without waiting for other processes that measure, which
            go to the measurements with the largest expected gain (:mod:`.gain`). A backend with a
            recorded candidate for a workload is not measured for it again. Whatever the budget, one
            candidate is measured for each workload of which nothing is recorded. None: everything
            is measured.
    """

    source = "measured"
    free = False

    def __init__(
        self,
        backends: Sequence[Backend],
        device: Device,
        recorded: RecordedCost,
        save: Save | None = None,
        most: int | None = None,
        budget: float | None = None,
        clock: Callable[[], float] = own_clock,
    ) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._device, self._recorded, self._most, self._clock = device, recorded, most, clock
        samples_ms = SAMPLES_MS if budget is None else QUICK_SAMPLES_MS
        self._measurements = LocalMeasurements(self._backends, device, save, samples_ms)
        self.thorough, self._left = budget is None, budget
        self.estimating = budget is not None
        self._occurrences: Mapping[Workload, int] | None = None
        self._errors = Errors()
        self._deadline = math.inf
        self._workloads: set[Workload] = set()

    def candidates(self, workload: Workload) -> list[Candidate]:
        return self._recorded.candidates(workload)

    def weigh(self, occurrences: Mapping[Workload, int]) -> None:
        self._occurrences = occurrences

    def estimates(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> Sequence[Measurement | None]:
        return self._recorded.estimates(workload, candidates)

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        workloads = [workload for workload, _ in jobs]
        self._recorded.calibrate(workloads, self._backends, self._measurements)
        pairs: list[tuple[Workload, Candidate]] = []
        beliefs: list[Belief] = []
        for workload, candidates in jobs:
            self._workloads.add(workload)
            self._read_records(workload, candidates)
            wanted = self._wanted(workload, candidates)
            left = [c for c in wanted if not self._measurements.find(workload, c)]
            pairs += [(workload, candidate) for candidate in left]
            if left and self._left is not None:
                beliefs.append(self._belief(workload, candidates, left))
        self._measurements.expected += len(pairs)
        links = untimed_links(jobs, self._measurements, self._backends, self._device)
        self._deadline = math.inf if self._left is None else self._clock() + self._left
        if self._left is None:
            self._measurements.prepare(pairs)
        else:
            self._measure_within_budget(beliefs, links)
        self._measure_links(links, LEAST_GAIN_US)
        if self._left is not None:
            self._left = self._budget_left()

    def _read_records(self, workload: Workload, candidates: Sequence[Candidate]) -> None:
        recorded = self._recorded.measurements(workload, candidates)
        for candidate, measurement in zip(candidates, recorded, strict=True):
            if measurement is not None:
                self._measurements.add(workload, candidate, measurement)

    def _measure_links(self, links: list[Link], least_us: float) -> None:
        """Measure kernels as links, the largest gains first, down to a gain."""

        def gain(link: Link) -> float:
            return self._count(link.workload) * link.gain_us(self._measurements)

        while links and self._budget_left() > 0:
            link = max(links, key=lambda link: (gain(link), link.workload.key))
            if gain(link) < least_us:
                return
            links.remove(link)
            self._measurements.measure_again(link.workload, link.candidate)

    def _count(self, workload: Workload) -> int:
        """Operations of the network that may run as this workload."""
        return 1 if self._occurrences is None else self._occurrences.get(workload, 0)

    def _budget_left(self) -> float:
        """Seconds that are left for measurements."""
        return self._deadline - self._clock()

    def _belief(
        self, workload: Workload, candidates: Sequence[Candidate], left: Sequence[Candidate]
    ) -> Belief:
        """Return the belief about a workload's candidates, some of them ``left`` to measure."""
        found = estimated(workload, candidates, self._backends, self._device, self.estimates)
        estimates = {
            candidate: estimate and as_link(candidate, estimate, self._backends, self._device)
            for candidate, estimate in zip(candidates, found, strict=True)
        }
        own = {candidate: estimates[candidate] for candidate in left}
        count = self._count(workload)
        belief = Belief(workload, own, self._device, max(count, 1), self._errors)
        for candidate, estimate in estimates.items():
            if (known := self._measurements.find(workload, candidate)) is not None:
                belief.add(candidate, known, estimate)
        return belief

    def _measure_within_budget(self, beliefs: Sequence[Belief], links: list[Link]) -> None:
        """Measure what promises the largest gain while the budget lasts."""
        own, budget = self._measurements, self._budget_left()
        taken = own.taken
        least = LEAST_GAIN * sum(belief.best_us for belief in beliefs)
        with closing(BuildsAhead(own)) as ahead:
            while batch := most_gain(beliefs, least, self._budget_left() > 0):
                first, _ = batch[0]
                if not first.blind:
                    self._measure_links(links, first.next()[0])
                waiting = {(belief.workload, candidate): belief for belief, candidate in batch}
                pairs = list(waiting)
                ahead.start(pairs, IN_TURN)
                for pair in ahead.built(pairs, IN_TURN):
                    belief, left = waiting[pair], self._budget_left()
                    if left > 0 or belief.blind:
                        own.expected = own.taken + _to_come(own.taken - taken, budget, left)
                        belief.add(pair[1], own.measure(*pair))
        known = sum(own.best_us(workload) is not None for workload in self._workloads)
        _log.info(
            "%d kernels measured in %.1f s; of %d workloads %d are measured, %d estimated",
            own.taken - taken, budget - self._budget_left(), len(self._workloads), known,
            len(self._workloads) - known,
        )  # fmt: skip

    def _wanted(self, workload: Workload, candidates: Sequence[Candidate]) -> set[Candidate]:
        """Select the candidates to measure: all, or the first ones of each backend."""
        if self._most is None and self._left is None:
            return set(candidates)
        wanted: set[Candidate] = set()
        for name in {candidate.backend for candidate in candidates}:
            own = [c for c in candidates if c.backend == name]
            unknown = [c for c in own if not self._measurements.find(workload, c)]
            known = len(own) - len(unknown)
            if known and self._left is not None:
                continue
            unknown.sort(key=lambda c: c.priority)
            most = len(own) if self._most is None else self._most
            wanted.update(unknown[: max(0, most - known)])
        return wanted

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        self._read_records(workload, candidates)
        if self._left is None:
            wanted = self._wanted(workload, candidates)
            for candidate in candidates:
                if candidate in wanted:
                    self._measurements.measure(workload, candidate)
        return [self._measurements.find(workload, c) for c in candidates]


def _to_come(measured: int, budget: float, left: float) -> int:
    """Measurements that there is time left for at the pace so far, one at least."""
    return max(1, int(measured * left / (budget - left))) if left < budget else 1

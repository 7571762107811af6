"""Cost model that measures on this machine."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..backends.base import Backend
from ..errors import CacheUnwritable, ConvoyError, LibraryMissing
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..progress import step
from .chained import chained_us
from .errors import Errors
from .estimates import estimated
from .gain import Belief
from .model import CostModel
from .recorded import RecordedCost

#: Candidates that are built ahead together while a budget lasts, and those of them that are
#: measured before gains are computed again.
AT_ONCE, IN_TURN = 16, 4
#: Measuring ends before the budget where the next measurement is expected to gain less than this
#: part of the network's time.
LEAST_GAIN = 1e-4
#: A kernel whose records have no time as a link of a chain is measured again if, as a link, it is
#: estimated to beat the best known one by this many microseconds.
LEAST_GAIN_US = 0.3
_log = logging.getLogger("convoy")


class _Link(NamedTuple):
    """A kernel that may be measured again as a link of a chain, and what it is estimated to take
    as one."""

    workload: Workload
    candidate: Candidate
    estimate_us: float


class MeasuredCost(CostModel):
    """Measures candidates on the GPU that is present; what the records hold is not measured again.

    Args:
        most: Candidates of one backend that are measured for a workload, recorded ones counted:
            its best guesses, by priority. None: all of them.
        budget: Seconds of measuring in all, which go to the measurements with the largest expected
            gain (:mod:`.gain`); what is left out is estimated. A backend with a recorded candidate
            for a workload is not measured for it again. Whatever the budget, one candidate is
            measured for a workload that nothing is known of and that cannot be estimated. None:
            everything is measured.
        proceed: Asked before each measurement; once it says no, nothing more is measured.
    """

    source = "measured"
    free = False

    def __init__(
        self,
        backends: Sequence[Backend],
        device: Device,
        recorded: RecordedCost | None = None,
        save: Callable[[Workload, Candidate, Measurement], None] | None = None,
        most: int | None = None,
        proceed: Callable[[], bool] | None = None,
        budget: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._most, self._proceed = most, proceed or (lambda: True)
        self._device, self._recorded, self._save = device, recorded, save
        self._clock = clock
        self.thorough, self._left = budget is None, budget
        self.estimating = budget is not None and recorded is not None
        self._occurrences: Mapping[Workload, int] | None = None
        self._done: dict[tuple[str, str, str], Measurement] = {}
        self._best: dict[str, float] = {}  # least kernel_us by workload
        self._ready: dict[tuple[str, str], bool] = {}
        self._seen, self._expected = 0, 0
        self._errors = Errors()
        self._deadline = math.inf
        self._workloads: set[str] = set()

    def _known(self, workload: Workload, candidates: Sequence[Candidate]) -> None:
        if self._recorded is None:
            return
        for candidate, measurement in zip(
            candidates, self._recorded.measurements(workload, candidates), strict=True
        ):
            if measurement is not None:
                self._keep((workload.key, *_id(candidate)), measurement)

    def candidates(self, workload: Workload) -> list[Candidate]:
        return self._recorded.candidates(workload) if self._recorded else []

    def weigh(self, occurrences: Mapping[Workload, int]) -> None:
        self._occurrences = occurrences

    def estimates(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        if self._recorded is None:
            return super().estimates(workload, candidates)
        return self._recorded.estimates(workload, candidates)

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        if self._recorded is not None:
            workloads = [workload for workload, _ in jobs]
            self._recorded.calibrate(
                workloads, list(self._backends), self._again, self._is_ready, self._prepare
            )
        pairs: list[tuple[Workload, Candidate]] = []
        beliefs: list[Belief] = []
        for workload, candidates in jobs:
            self._workloads.add(workload.key)
            self._known(workload, candidates)
            left = [c for c in self._wanted(workload, candidates) if not self._found(workload, c)]
            pairs += [(workload, candidate) for candidate in left]
            if left and self._left is not None:
                beliefs.append(self._belief(workload, candidates, left))
        self._expected += len(pairs)
        links = self._links(jobs)
        self._deadline = math.inf if self._left is None else self._clock() + self._left
        if self._left is None:
            self._prepare(pairs)
        else:
            self._measure_within_budget(beliefs, links)
        self._measure_links(links, LEAST_GAIN_US)
        if self._left is not None:
            self._left = self._budget_left()
            self._build_assumed(beliefs)

    def _links(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> list[_Link]:
        """The most promising kernel of each workload of which records have no time as a link of a
        chain."""
        found: list[_Link] = []
        for workload, candidates in jobs:
            plain = [
                (known.kernel_us, candidate)
                for candidate in candidates
                if (known := self._found(workload, candidate)) is not None
                and known.kernel_us is not None
                and known.chained_us is None
                and self._backends[candidate.backend].is_programmatic(candidate)
            ]
            if plain:
                us, candidate = min(plain)
                found.append(_Link(workload, candidate, chained_us(Measurement(us)) or us))
        return found

    def _measure_links(self, links: list[_Link], least_us: float) -> None:
        """Measure kernels as links, the largest gains first, down to a gain."""

        def gain(link: _Link) -> float:
            each = self._best[link.workload.key] - link.estimate_us
            return self._count(link.workload) * each if each > LEAST_GAIN_US else 0.0

        while links and self._budget_left() > 0 and self._proceed():
            link = max(links, key=lambda link: (gain(link), link.workload.key))
            if gain(link) < least_us:
                return
            links.remove(link)
            del self._done[(link.workload.key, *_id(link.candidate))]
            self._measure(link.workload, link.candidate)

    def _found(self, workload: Workload, candidate: Candidate) -> Measurement | None:
        return self._done.get((workload.key, *_id(candidate)))

    def _count(self, workload: Workload) -> int:
        """Operations of the network that may run as this workload."""
        return 1 if self._occurrences is None else self._occurrences.get(workload, 0)

    def _budget_left(self) -> float:
        """Seconds that are left for measurements."""
        return self._deadline - self._clock()

    def _belief(
        self, workload: Workload, candidates: Sequence[Candidate], left: Sequence[Candidate]
    ) -> Belief:
        """What is known of a workload's candidates, some of which are ``left`` to measure."""
        found = estimated(workload, candidates, self._backends, self._device, self.estimates)
        estimates = dict(zip(candidates, found, strict=True))
        own = {candidate: estimates[candidate] for candidate in left}
        count = self._count(workload)
        belief = Belief(workload, own, self._device, max(count, 1), not count, self._errors)
        for candidate, estimate in estimates.items():
            if (known := self._found(workload, candidate)) is not None:
                belief.add(candidate, known, estimate)
        return belief

    def _measure_within_budget(self, beliefs: Sequence[Belief], links: list[_Link]) -> None:
        """Measure what promises the largest gain while the budget lasts."""
        budget, seen = self._budget_left(), self._seen
        least = LEAST_GAIN * sum(belief.best_us for belief in beliefs)
        built: set[tuple[Workload, Candidate]] = set()
        while batch := _most_gain(beliefs, least, self._budget_left() > 0):
            first, _ = batch[0]
            if not first.blind:
                self._measure_links(links, first.next()[0])
            ahead = {(belief.workload, candidate) for belief, candidate in batch[:IN_TURN]}
            if not ahead <= built:
                pairs = [(belief.workload, candidate) for belief, candidate in batch]
                self._prepare([pair for pair in pairs if pair not in built])
                built.update(pairs)
            for belief, candidate in batch[:IN_TURN]:
                left = self._budget_left()
                if left > 0 or belief.blind:
                    self._expected = self._seen + _to_come(self._seen - seen, budget, left)
                    belief.add(candidate, self._measure(belief.workload, candidate))
        known = sum(key in self._best for key in self._workloads)
        _log.info(
            "%d kernels measured in %.1f s; of %d workloads %d are measured, %d estimated",
            self._seen - seen, budget - self._budget_left(), len(self._workloads), known,
            len(self._workloads) - known,
        )  # fmt: skip

    def _build_assumed(self, beliefs: Sequence[Belief]) -> None:
        """Build what estimates select, so that a candidate that does not build fails now, and the
        next best one is selected."""
        while pairs := [(belief, c) for belief in beliefs if (c := belief.assumed) is not None]:
            refused = self._prepare([(belief.workload, candidate) for belief, candidate in pairs])
            for belief, candidate in pairs:
                if (error := refused.get(candidate)) is not None:
                    failed = Measurement(failure=str(error))
                    belief.add(candidate, failed)
                    self._keep((belief.workload.key, *_id(candidate)), failed)
            beliefs = [belief for belief, candidate in pairs if candidate in refused]

    def _prepare(self, pairs: Sequence[tuple[Workload, Candidate]]) -> dict[Candidate, ConvoyError]:
        """Have each backend build its candidates ahead of time; return the errors."""
        refused: dict[Candidate, ConvoyError] = {}
        by_backend: dict[str, list[tuple[Workload, Candidate]]] = {}
        for workload, candidate in pairs:
            by_backend.setdefault(candidate.backend, []).append((workload, candidate))
        for name, own in by_backend.items():
            refused |= self._backends[name].prepare(own, self._device)
        return refused

    def _is_ready(self, candidate: Candidate) -> bool:
        key = candidate.backend, candidate.config
        if key not in self._ready:
            try:
                self._ready[key] = self._backends[candidate.backend].is_ready(candidate)
            except LibraryMissing:
                self._ready[key] = False
        return self._ready[key]

    def _again(self, workload: Workload, candidate: Candidate) -> Measurement:
        """Measure a recorded candidate on this machine."""
        from ..measure import protocol

        backend = self._backends[candidate.backend]
        binary = backend.build(workload, candidate, self._device)
        return protocol.measure(workload, candidate, binary, self._device, cold=False)

    def _wanted(self, workload: Workload, candidates: Sequence[Candidate]) -> set[Candidate]:
        """Select the candidates to measure: all, or the first ones of each backend."""
        if self._most is None and self._left is None:
            return set(candidates)
        wanted: set[Candidate] = set()
        for name in {candidate.backend for candidate in candidates}:
            own = [c for c in candidates if c.backend == name]
            unknown = [c for c in own if not self._found(workload, c)]
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
        self._known(workload, candidates)
        if self._left is None:
            wanted = self._wanted(workload, candidates)
            for candidate in candidates:
                if candidate in wanted and self._proceed():
                    self._measure(workload, candidate)
        return [self._found(workload, c) for c in candidates]

    def _measure(self, workload: Workload, candidate: Candidate) -> Measurement:
        """Measure a candidate once and save the result; a failure is a measurement as well."""
        from ..measure import protocol

        key = (workload.key, *_id(candidate))
        if key in self._done:
            return self._done[key]
        self._seen += 1
        label = f"{workload.key} {candidate.kernel}"
        step(label, self._seen, max(self._expected, self._seen))
        best, save = self._best.get(workload.key), self._save
        try:
            binary = self._backends[candidate.backend].build(workload, candidate, self._device)
            found = protocol.measure(workload, candidate, binary, self._device, best_us=best)
        except (LibraryMissing, CacheUnwritable) as err:
            found, save = Measurement(failure=str(err)), None  # this machine's failure
        except ConvoyError as err:
            found = Measurement(failure=str(err))
        self._keep(key, found)
        if save:
            save(workload, candidate, found)
        return found

    def _keep(self, key: tuple[str, str, str], found: Measurement) -> None:
        self._done.setdefault(key, found)
        if found.ok and found.kernel_us is not None:
            self._best[key[0]] = min(found.kernel_us, self._best.get(key[0], math.inf))


def _id(candidate: Candidate) -> tuple[str, str]:
    return candidate.backend, candidate.kernel


def _to_come(measured: int, budget: float, left: float) -> int:
    """Measurements that there is time left for at the pace so far, one at least."""
    return max(1, int(measured * left / (budget - left))) if left < budget else 1


def _most_gain(
    beliefs: Sequence[Belief], least_us: float, all_of_them: bool
) -> list[tuple[Belief, Candidate]]:
    """Candidates to measure next, one of a workload: those that have to be, then the largest
    expected gains above ``least_us``; without ``all_of_them`` the former alone."""
    found = []
    for belief in beliefs:
        gain, candidate = belief.next()
        if candidate is not None and (belief.blind or (all_of_them and gain > least_us)):
            found.append((not belief.blind, -gain, belief.workload.key, belief, candidate))
    found.sort(key=lambda item: item[:3])
    return [(belief, candidate) for *_, belief, candidate in found[:AT_ONCE]]

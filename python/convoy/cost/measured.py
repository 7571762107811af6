"""Cost model that measures on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from ..backends.base import Backend
from ..errors import CacheUnwritable, ConvoyError, LibraryMissing
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..progress import Progress
from .chained import estimate_us
from .guesses import Guess, in_order
from .model import CostModel
from .nearest import least_us
from .recorded import RecordedCost

#: Candidates that are built ahead together while a budget lasts.
AT_ONCE = 32
#: A kernel whose records have no time as a link of a chain is measured again if, as a link, it is
#: estimated to beat the best known one by this many microseconds.
LEAST_GAIN_US = 0.3
#: The search continues while the best kernel takes more than this many times the minimum.
SLOW = 5.0


class MeasuredCost(CostModel):
    """Measures candidates on the GPU that is present; what the records hold is not measured again.

    Nothing is known of what is left out.

    Args:
        most: Candidates of one backend that are measured for a workload, recorded ones counted:
            its best guesses, by priority. None: all of them.
        budget: Seconds of measuring in all. The best by records of similar workloads comes first,
            for all workloads, then the best guess of every backend, then the next ones; a backend
            with a recorded candidate for a workload is not measured for it again. Whatever the
            budget, the first of them for a workload of which nothing is known is measured, and the
            best guesses of backends where what is known takes SLOW times what its bytes and
            arithmetic would. None: everything is measured.
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
        progress: Progress | None = None,
        most: int | None = None,
        proceed: Callable[[], bool] | None = None,
        budget: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._most, self._proceed = most, proceed or (lambda: True)
        self._device, self._recorded, self._save = device, recorded, save
        self._progress, self._clock = progress, clock
        self.thorough, self._left = budget is None, budget
        self._done: dict[tuple[str, str, str], Measurement] = {}
        self._best: dict[str, float] = {}  # least kernel_us by workload
        self._ready: dict[tuple[str, str], bool] = {}
        self._seen, self._expected = 0, 0

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

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        wanted: list[tuple[Workload, Candidate]] = []
        if self._recorded is not None:
            workloads = [workload for workload, _ in jobs]
            self._recorded.calibrate(
                workloads, list(self._backends), self._again, self._is_ready, self._prepare
            )
        for workload, candidates in jobs:
            self._known(workload, candidates)
            for candidate in self._wanted(workload, candidates):
                if (workload.key, *_id(candidate)) not in self._done:
                    wanted.append((workload, candidate))
        self._expected += len(wanted)
        if self._left is None:
            self._prepare(wanted)
        else:
            self._measure_within_budget(wanted)
        self._measure_links(jobs)

    def _measure_links(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        """Measure the most promising kernel of each workload again, of which records have no time
        as a link of a chain; the largest gains first, while the budget lasts."""
        gains: list[tuple[float, str, Workload, Candidate]] = []
        for workload, candidates in jobs:
            plain = [
                (found.kernel_us, candidate)
                for candidate in candidates
                if (found := self._done.get((workload.key, *_id(candidate)))) is not None
                and found.kernel_us is not None
                and found.chained_us is None
                and self._backends[candidate.backend].is_programmatic(candidate)
            ]
            if plain:
                us, candidate = min(plain)
                gain = self._best[workload.key] - estimate_us(us)
                if gain > LEAST_GAIN_US:
                    gains.append((-gain, workload.key, workload, candidate))
        for _, _, workload, candidate in sorted(gains):
            began = self._clock()
            if (self._left is not None and self._left <= 0) or not self._proceed():
                break
            del self._done[(workload.key, *_id(candidate))]
            self._measure(workload, candidate)
            if self._left is not None:
                self._left -= self._clock() - began

    def _measure_within_budget(self, wanted: Sequence[tuple[Workload, Candidate]]) -> None:
        """Measure the most promising guesses while the budget lasts."""
        estimates = super().estimates if self._recorded is None else self._recorded.estimates
        ordered = in_order(wanted, estimates, self._device)

        def counts(guess: Guess) -> bool:
            """Whether a candidate is measured that the budget leaves out."""
            key = guess.workload.key
            return key not in self._best or (guess.rank <= 1 and self._is_slow(guess.workload))

        for start in range(0, len(ordered), AT_ONCE):
            batch = ordered[start : start + AT_ONCE]
            began, left = self._clock(), self._left or 0.0
            needed = [guess for guess in batch if left > 0 or counts(guess)]
            self._prepare([(guess.workload, guess.candidate) for guess in needed])
            for guess in needed:
                if self._clock() - began < left or counts(guess):
                    self._measure(guess.workload, guess.candidate)
            self._left = left - (self._clock() - began)

    def _is_slow(self, workload: Workload) -> bool:
        """Whether the best known time is far above the roofline."""
        return self._best[workload.key] > SLOW * least_us(workload, self._device)

    def _prepare(self, pairs: Sequence[tuple[Workload, Candidate]]) -> None:
        """Have each backend build its candidates ahead of time."""
        by_backend: dict[str, list[tuple[Workload, Candidate]]] = {}
        for workload, candidate in pairs:
            by_backend.setdefault(candidate.backend, []).append((workload, candidate))
        for name, own in by_backend.items():
            self._backends[name].prepare(own, self._device)

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
            unknown = [c for c in own if (workload.key, *_id(c)) not in self._done]
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
        return [self._done.get((workload.key, *_id(c))) for c in candidates]

    def _measure(self, workload: Workload, candidate: Candidate) -> None:
        """Measure a candidate once and save the result; a failure is a measurement as well."""
        from ..measure import protocol

        key = (workload.key, *_id(candidate))
        if key in self._done:
            return
        self._seen += 1
        if self._progress:
            label = f"{workload.key} {candidate.kernel}"
            self._progress(label, self._seen, max(self._expected, self._seen))
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

    def _keep(self, key: tuple[str, str, str], found: Measurement) -> None:
        self._done.setdefault(key, found)
        if found.ok and found.kernel_us is not None:
            self._best[key[0]] = min(found.kernel_us, self._best.get(key[0], math.inf))


def _id(candidate: Candidate) -> tuple[str, str]:
    return candidate.backend, candidate.kernel

"""The state of one workload while it is tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.offer import Offer
from ..ir.workload import Workload
from ..records.record import CandidateKey, candidate_key
from .budget import Budget
from .space import Space

#: A smaller relative improvement is noise.
LEAST_IMPROVEMENT = 0.01


class Task:
    """A workload with its search space, its trials and their results.

    ``known`` are measurements from before the run: a chosen candidate that has one is not measured
    again. That alone makes a run resumable, since a second run makes the same choices.
    """

    def __init__(self, space: Space, known: Mapping[CandidateKey, Measurement]) -> None:
        self.space, self._known = space, known
        self.results: dict[CandidateKey, Offer] = {}
        self.widened: set[CandidateKey] = set()
        self.since_improvement = 0
        self.best_us: float | None = None

    @property
    def workload(self) -> Workload:
        return self.space.workload

    def remaining(self) -> list[Candidate]:
        """Return the candidates without a result, in the order of the space."""
        return [c for c in self.space.candidates if candidate_key(c) not in self.results]

    def known(self, candidate: Candidate) -> Measurement | None:
        """Return a candidate's measurement from before the run."""
        return self._known.get(candidate_key(candidate))

    def times(self) -> list[tuple[float, Candidate]]:
        """Return (kernel time in us, candidate) of all that ran, in the order of the results."""
        timed = [(o.measurement.kernel_us, o) for o in self.results.values() if o.measurement.ok]
        return [(time, offer.candidate) for time, offer in timed if time is not None]

    def best(self) -> Candidate | None:
        """Return the fastest candidate so far; of equal ones the first in the space."""
        times = {candidate_key(candidate): time for time, candidate in self.times()}
        ran = [c for c in self.space.candidates if candidate_key(c) in times]
        return min(ran, key=lambda c: times[candidate_key(c)], default=None)

    def add(self, candidate: Candidate, measurement: Measurement) -> None:
        """Store the result of a trial."""
        self.results[candidate_key(candidate)] = Offer(candidate, measurement)

    def widen(self, neighbours: Iterable[Candidate], around: Candidate) -> None:
        """Add variations of a candidate to the space."""
        self.widened.add(candidate_key(around))
        self.space = self.space.extended(neighbours)

    def finish_round(self, trials: int) -> None:
        """Account for a round of this many trials, all of which have results."""
        best = min((time for time, _ in self.times()), default=None)
        before = self.best_us
        improved = best is not None and (before is None or best < (1 - LEAST_IMPROVEMENT) * before)
        self.since_improvement = 0 if improved else self.since_improvement + trials
        self.best_us = best

    def exhausted(self, budget: Budget) -> bool:
        """Return whether trials or patience are used up."""
        spent = budget.trials is not None and len(self.results) >= budget.trials
        return spent or (budget.patience is not None and self.since_improvement >= budget.patience)

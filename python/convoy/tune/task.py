"""One workload on its way through tuning."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.record import CandidateKey, candidate_key
from .space import Space

#: An improvement smaller than this is noise.
LEAST_IMPROVEMENT = 0.01


class Task:
    """A workload with its space, what was chosen so far and what came of it.

    ``known`` are figures from before the run: a candidate that is chosen and known takes them
    instead of being measured again. That alone makes a run resumable: a second run makes the same
    choices as the first.
    """

    def __init__(self, space: Space, known: Mapping[CandidateKey, Measurement]) -> None:
        self.space, self._known = space, known
        self.results: dict[CandidateKey, tuple[Candidate, Measurement]] = {}
        self.widened: set[CandidateKey] = set()
        self.since_improvement = 0
        self.best_us: float | None = None

    @property
    def workload(self) -> Workload:
        return self.space.workload

    def remaining(self) -> list[Candidate]:
        """What was not chosen yet, in the order of the space."""
        return [c for c in self.space.candidates if candidate_key(c) not in self.results]

    def known(self, candidate: Candidate) -> Measurement | None:
        return self._known.get(candidate_key(candidate))

    def best(self) -> Candidate | None:
        """The fastest candidate so far; of equal ones the first in the space."""
        timed = [self.results.get(candidate_key(c)) for c in self.space.candidates]
        ran = [(c, m.kernel_us) for c, m in filter(None, timed) if m.ok and m.kernel_us]
        return min(ran, key=lambda item: item[1])[0] if ran else None

    def add(self, candidate: Candidate, measurement: Measurement) -> None:
        self.results[candidate_key(candidate)] = candidate, measurement

    def finish_round(self, chosen: int) -> None:
        """Account for a round of so many choices, all of which have their results."""
        times = [m.kernel_us for _, m in self.results.values() if m.ok and m.kernel_us is not None]
        best = min(times, default=None)
        before = self.best_us
        improved = best is not None and (before is None or best < (1 - LEAST_IMPROVEMENT) * before)
        self.since_improvement = 0 if improved else self.since_improvement + chosen
        self.best_us = best

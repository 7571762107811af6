"""The result of a tuning run, and callbacks while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.candidate import Candidate
from ..ir.offer import Offer
from ..ir.workload import Workload
from .job import Result
from .space import Space


@dataclass
class Outcome:
    """The result of a run.

    Attributes:
        measured: Candidates measured, failed ones included.
        failed: Candidates that could not be compiled or run.
        reused: Candidates whose measurement was recorded before.
        seconds: Duration of the run.
        stopped: Limit of the budget that ended the run early; empty if none did.
        best: Fastest known candidate of each workload.
    """

    measured: int = 0
    failed: int = 0
    reused: int = 0
    seconds: float = 0.0
    stopped: str = ""
    best: dict[Workload, Offer] = field(default_factory=dict)


class Observer:
    """Callbacks of a run; each does nothing unless overridden."""

    def begin(self, workloads: int, trials: int | None) -> None:
        """A run begins, with this number of trials for each workload (None: all candidates)."""

    def proposed(self, space: Space) -> None:
        """The candidates of a workload are known."""

    def result(self, result: Result, best_us: float | None) -> None:
        """A candidate was measured; ``best_us`` is the fastest kernel of its workload so far."""

    def reused(self, workload: Workload, candidate: Candidate) -> None:
        """A candidate's measurement was taken from the records."""

    def done(self, workload: Workload) -> None:
        """A workload is finished."""

"""The interface of a cost model, which gives measurements of candidates."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload


class CostModel(abc.ABC):
    """Base class of cost models.

    Attributes:
        source: Origin of the costs, as shown in plans.
        measures: Whether any candidate can be priced, or only those of :meth:`candidates`.
        free: Whether it needs no GPU time.
        estimating: Whether candidates without a measurement are estimated, by the kernel's own
            model (:meth:`Backend.estimate_us`) or by :meth:`estimates`.
        thorough: Whether backends propose candidates for a workload even if some of theirs are
            recorded.
    """

    source = "measured"
    measures = True
    free = True
    estimating = False
    thorough = True

    @abc.abstractmethod
    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        """Return a measurement for each candidate; None for an unknown one."""

    def estimates(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> Sequence[Measurement | None]:
        """Return estimates (measurements without samples) for a workload without measurements;
        None for an unknown candidate. Optional."""
        return [None] * len(candidates)

    def candidates(self, workload: Workload) -> list[Candidate]:
        """Return candidates known from elsewhere (records), besides those that backends propose."""
        return []

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        """Announce all candidates to come, so that they can be built in parallel. Optional."""

    def weigh(self, occurrences: Mapping[Workload, int]) -> None:
        """Announce how many operations of the network may run as each workload. Optional."""

"""Where the measurements of candidates come from, behind one base class."""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from .host import Again, Prepare, Ready


class CostModel(abc.ABC):
    """Gives the measurements of a workload's candidates; placement asks nothing else of it.

    Attributes:
        source: Name of the source, as plans keep it.
        measures: Whether it can give a measurement of any candidate, or only of those that
            :meth:`candidates` names.
        free: Whether asking it takes no time on a GPU.
        estimating: Whether what it has no measurement of is estimated, by the kernel's own model
            (:meth:`Backend.estimate_us`) or by :meth:`estimates`.
        thorough: Whether backends shall propose candidates for a workload even where some of
            theirs are recorded.
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
        """A measurement for each candidate, None where nothing is known of it."""

    def estimates(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        """Estimates (measurements without samples) for a workload of an operation of which nothing
        is measured; None where there is none. Optional."""
        return [None] * len(candidates)

    def candidates(self, workload: Workload) -> list[Candidate]:
        """Candidates known from elsewhere (records), beside those that backends propose."""
        return []

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        """Take note of all candidates to come, so that they can be built in parallel. Optional."""

    def calibrate(
        self,
        workloads: Sequence[Workload],
        backends: Collection[str],
        again: Again,
        ready: Ready = lambda _: True,
        prepare: Prepare = lambda _: None,
    ) -> None:
        """Rescale host times that were measured on other hosts to this one (see
        :meth:`HostTimes.calibrate`). Optional."""

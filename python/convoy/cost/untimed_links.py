"""Kernels without a recorded time as a link of a chain, which a budget may measure again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.workload import Workload
from .chained import estimate_us
from .local_measurements import LocalMeasurements

#: Such a kernel is measured again if, as a link, it is estimated to beat the best known one by this
#: many microseconds.
LEAST_GAIN_US = 0.3


@dataclass(frozen=True)
class Link:
    """A kernel, and the time that it is estimated to take as a link of a chain."""

    workload: Workload
    candidate: Candidate
    estimate_us: float

    def gain_us(self, known: LocalMeasurements) -> float:
        """Estimate the time that the kernel saves as a link, against the best known one; 0 for
        less than LEAST_GAIN_US."""
        gain = (known.best_us(self.workload) or 0.0) - self.estimate_us
        return gain if gain > LEAST_GAIN_US else 0.0


def untimed_links(
    jobs: Sequence[tuple[Workload, Sequence[Candidate]]],
    known: LocalMeasurements,
    backends: Mapping[str, Backend],
    device: Device,
) -> list[Link]:
    """Return the most promising kernel of each workload that is launched programmatically and has
    no time as a link."""
    links: list[Link] = []
    for workload, candidates in jobs:
        plain = [
            (found.kernel_us, candidate)
            for candidate in candidates
            if (found := known.find(workload, candidate)) is not None
            and found.kernel_us is not None
            and found.chained_us is None
            and backends[candidate.backend].is_programmatic(candidate, device)
        ]
        if plain:
            us, candidate = min(plain)
            links.append(Link(workload, candidate, estimate_us(us)))
    return links

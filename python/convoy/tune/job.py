"""Messages between the tuner and executors."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment


@dataclass(frozen=True)
class Job:
    """Candidates of one workload, measured one after another on one GPU.

    Attributes:
        workload: The workload.
        candidates: What to measure, in this order.
        best_us: Fastest kernel known so far; much slower ones are measured less closely.
    """

    workload: Workload
    candidates: tuple[Candidate, ...]
    best_us: float | None = None


@dataclass(frozen=True)
class Result:
    """A measured candidate.

    Attributes:
        workload: The workload.
        candidate: The candidate.
        measurement: Its timings, or why there are none.
        environment: That of the machine which measured, as far as the candidate depends on it.
        seconds: Duration on the GPU.
    """

    workload: Workload
    candidate: Candidate
    measurement: Measurement
    environment: Environment
    seconds: float = 0.0

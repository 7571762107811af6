"""What travels between the tuner and the processes that measure."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment


@dataclass(frozen=True)
class Job:
    """Candidates of one workload to be measured one after another on one GPU.

    ``best_us`` is the fastest kernel known so far: much slower ones are measured less closely.
    """

    workload: Workload
    candidates: tuple[Candidate, ...]
    best_us: float | None = None


@dataclass(frozen=True)
class Result:
    """One candidate measured. ``environment`` is that of the machine which measured, ``seconds``
    what it took there."""

    workload: Workload
    candidate: Candidate
    measurement: Measurement
    environment: Environment
    seconds: float = 0.0

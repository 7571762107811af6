"""A record, its key and its line of text (:mod:`.lines` reads lines)."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.candidate import Candidate
from ..ir.compact import without_defaults
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from .environment import Environment

FORMAT_VERSION = 1
CandidateKey = tuple[str, str, str]


class HostSample(NamedTuple):
    """The times of a record that has all of them, in microseconds, and their dependences.

    ``wait_us`` is the synchronized call without the kernel; only ``cold_us`` may be missing;
    ``host``, ``boot`` and ``gpu`` are those of the environment.
    """

    backend: str
    kernel: str
    workspace: int
    host: str
    boot: str
    enqueue_us: float
    enqueue_spread_us: float
    wait_us: float
    e2e_spread_us: float
    gpu: str
    kernel_us: float
    cold_us: float | None


def now() -> str:
    """UTC time as records carry it; sorts as text."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Record:
    """A measurement with all that it depends on."""

    workload: Workload
    candidate: Candidate
    measurement: Measurement
    environment: Environment
    time: str = field(default_factory=now)

    @property
    def key(self) -> tuple[str, CandidateKey, str]:
        """Two records with one key are measurements of the same thing; the later one counts."""
        return self.workload.key, candidate_key(self.candidate), self.environment.id

    def to_line(self) -> str:
        return _dump(
            {
                "v": FORMAT_VERSION,
                "env": self.environment.id,
                "workload": without_defaults(self.workload),
                "candidate": without_defaults(self.candidate),
                "measurement": self.measurement.to_json(),
                "time": self.time,
            }
        )

    def host_sample(self) -> HostSample | None:
        """Return the host times; None if one of them is missing or zero."""
        times, environment = self.measurement, self.environment
        if not (times.ok and times.enqueue_us and times.e2e_us and times.kernel_us):
            return None
        return HostSample(
            self.candidate.backend,
            self.candidate.kernel,
            self.candidate.workspace,
            environment.host,
            environment.boot,
            times.enqueue_us,
            times.enqueue_spread_us or 0.0,
            max(0.0, times.e2e_us - times.kernel_us),
            times.e2e_spread_us or 0.0,
            environment.gpu,
            times.kernel_us,
            times.cold_us,
        )


def candidate_key(candidate: Candidate) -> CandidateKey:
    """The part of a record's key that names the candidate."""
    return candidate.backend, candidate.kernel, candidate.config


def workload_text(workload: Workload) -> str:
    """The text of a workload in a line that Convoy wrote."""
    return _dump(without_defaults(workload)).rstrip()


def header_line(environment: Environment) -> str:
    return _dump({"v": FORMAT_VERSION, "id": environment.id, "environment": environment.to_json()})


def _dump(data: dict[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n"

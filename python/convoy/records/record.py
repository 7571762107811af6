"""One record and its line of text.

A record file holds JSON lines of two kinds. A header states an environment once::

    {"v":1,"id":"5f0c…","environment":{"gpu":"NVIDIA H200","sm_count":132,…}}

and every record refers to one by id::

    {"v":1,"env":"5f0c…","workload":{…},"candidate":{…},"measurement":{…},"time":"2026-01-31T12:00:00Z"}

Fields that have their default value are left out. A header may be stated again, so that files
can be joined with ``cat``.
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConvoyError, InvalidOption
from ..ir import fields as checks
from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload, without_defaults
from . import upgrade
from .environment import Environment

FORMAT_VERSION = 1
#: How the lines begin that convoy writes: environment and workload can be told without the rest.
_OWN_LINE = re.compile(
    rf'\{{"v":{FORMAT_VERSION},"env":"(\w+)","workload":(\{{.*?\}}),"candidate":\{{"backend":"'
)
_ID, _TIME = {"id": checks.text(64)}, {"env": checks.text(64), "time": checks.text(64)}
CandidateKey = tuple[str, str, str]


class BadLine(ValueError):
    """A line that is not a record; its text is the reason."""


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


def candidate_key(candidate: Candidate) -> CandidateKey:
    """The part of a record's key that names the candidate."""
    return candidate.backend, candidate.kernel, candidate.config


def header_line(environment: Environment) -> str:
    return _dump({"v": FORMAT_VERSION, "id": environment.id, "environment": environment.to_json()})


class Parser:
    """Reads the lines of one file in order; remembers the environments that it has seen."""

    def __init__(self) -> None:
        self.environments: dict[str, Environment] = {}
        self._workloads: dict[str, Workload] = {}
        self._glanced: dict[str, Workload] = {}

    def parse(self, line: str) -> Record | None:
        """The record of a line; None for a header. Raises BadLine with the reason."""
        try:
            data = checks.parse_json(line, "a line", InvalidOption)
        except InvalidOption:
            raise BadLine("not JSON: damaged, or cut short by a crash") from None
        if not isinstance(data, dict) or "v" not in data:
            raise BadLine("not a record")
        if data["v"] != FORMAT_VERSION:
            raise BadLine(f"format version {data['v']!r}, this convoy reads {FORMAT_VERSION}")
        try:
            if "id" in data:
                name = checks.checked({"id": data["id"]}, _ID, "header", InvalidOption)["id"]
                self.environments[name] = Environment.from_json(data["environment"])
                return None
            return self._record(data)
        except (KeyError, TypeError, ValueError, AttributeError, ConvoyError) as err:
            raise BadLine(f"{type(err).__name__}: {err}"[:200]) from None

    def glance(self, line: str) -> Workload | None:
        """The workload of a line that looks like a whole record of a stated environment, which
        takes a tenth of the time of :meth:`parse`; None for any other line."""
        match = _OWN_LINE.match(line)
        if match is None or match[1] not in self.environments or not line.endswith('Z"}\n'):
            return None
        if match[2] not in self._glanced:
            try:
                found = checks.parse_json(match[2], "a workload", InvalidOption)
                self._glanced[match[2]] = Workload.from_json(found)
            except ConvoyError:
                return None
        return self._glanced[match[2]]

    def _record(self, data: dict[str, Any]) -> Record:
        own = {"env": data["env"], "time": data["time"]}
        checks.checked(own, _TIME, "record", InvalidOption)
        environment = self.environments.get(data["env"])
        if environment is None:
            raise BadLine(f"environment {data['env']!r} was not stated before")
        # The same workload comes back once for each candidate: checked and made only once.
        text = repr(data["workload"])
        if text not in self._workloads:
            self._workloads[text] = Workload.from_json(data["workload"])
        return Record(
            self._workloads[text],
            Candidate.from_json(upgrade.candidate(data["candidate"])),
            Measurement.from_json(data["measurement"]),
            environment,
            data["time"],
        )


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n"

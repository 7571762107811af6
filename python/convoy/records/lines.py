"""Read the lines of a record file.

A record file holds JSON lines of two kinds. A header states an environment once::

    {"v":1,"id":"5f0c…","environment":{"gpu":"NVIDIA H200","sm_count":132,…}}

and every record refers to one by id::

    {"v":1,"env":"5f0c…","workload":{…},"candidate":{…},"measurement":{…},"time":"2026-01-31T12:00:00Z"}

Fields that have their default value are left out. A header may be stated again, so that files
can be joined with ``cat``.
"""

from __future__ import annotations

import re

from ..errors import ConvoyError, InvalidOption
from ..ir import fields as checks
from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from . import upgrade
from .environment import Environment
from .record import FORMAT_VERSION, CandidateKey, HostSample, Record

#: How the lines begin that convoy writes: environment and workload can be told without the rest.
_OWN_LINE = re.compile(
    rf'\{{"v":{FORMAT_VERSION},"env":"(\w+)","workload":(\{{.*?\}}),"candidate":\{{"backend":"'
)
_HEADER = f'{{"v":{FORMAT_VERSION},"id":"'
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?"
_HOST_TIMES = ("enqueue_us", "enqueue_spread_us", "e2e_us", "e2e_spread_us")
_TIMES = ("kernel_us", "kernel_spread_us", "cold_us", "chained_us", *_HOST_TIMES)
#: A whole line with host times, every field bounded as its check bounds it.
_WHOLE_LINE = re.compile(
    _OWN_LINE.pattern
    + r'(?P<backend>\w{1,200})","kernel":"(?P<kernel>[^"\\]{1,1000})"'
    + r'(?:,"config":"(?P<config>(?:[^"\\]|\\"){0,65000})")?(?:,"workspace":(?P<space>\d{1,18}))?'
    + r'(?:,"priority":\d{1,9})?(?:,"deterministic":false)?'
    + r'(?:,"notes":\["\w{1,200}"(?:,"\w{1,200}")?\])?\},'
    + r'"measurement":\{'
    + ",".join(rf'"{name}":(?P<{name}>{_NUMBER})' for name in ("kernel_us", "kernel_spread_us"))
    + rf'(?:,"cold_us":(?P<cold_us>{_NUMBER}))?'
    + "".join(rf',"{name}":(?P<{name}>{_NUMBER})' for name in _HOST_TIMES)
    + rf'(?:,"samples":\d{{1,9}})?(?:,"error":{_NUMBER})?'
    + rf'(?:,"chained_us":(?P<chained_us>{_NUMBER}))?\}},'
    + r'"time":"(?P<time>[^"\\]{1,64})"\}\n'
)
_LEAST_US, _MOST_US = 1e-3, 1e12
_NAME = checks.text(64)


class BadLine(ValueError):
    """A line that is not a record; its text is the reason."""


def glance_at_workload(line: str) -> str | None:
    """The text of the workload in a line that Convoy wrote, empty for a header; None for any other
    line."""
    if (match := _OWN_LINE.match(line)) is not None:
        return match[2]
    return "" if line.startswith(_HEADER) else None


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
                name = _NAME(data["id"])
                self.environments[name] = Environment.from_json(data["environment"])
                return None
            return self._record(data)
        except (KeyError, TypeError, ValueError, AttributeError, ConvoyError) as err:
            raise BadLine(f"{type(err).__name__}: {err}"[:200]) from None

    def glance(self, line: str) -> Workload | None:
        """Return the workload of a line that looks like a complete record of a known environment,
        in a tenth of the time of :meth:`parse`; None for any other line."""
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

    def glance_at_times(
        self, line: str
    ) -> tuple[tuple[str, CandidateKey], str, HostSample | None] | None:
        """Return environment and candidate, time, and host times of a line that Convoy wrote, in a
        fifth of the time of :meth:`parse`; None for a line that only :meth:`parse` can read."""
        match = _WHOLE_LINE.fullmatch(line)
        environment = self.environments.get(match[1]) if match is not None else None
        if match is None or environment is None:
            return None
        backend, kernel, config = match["backend"], match["kernel"], match["config"] or "{}"
        if backend == "hopper" and "store_warps" in config:
            return None  # an earlier version's
        key = environment.id, (backend, kernel, config.replace('\\"', '"'))
        times = {name: float(match[name] or 0.0) for name in _TIMES}
        if max(times.values()) > _MOST_US or times["kernel_us"] < _LEAST_US:
            return None
        if not (times["enqueue_us"] and times["e2e_us"]):
            return key, match["time"], None
        sample = HostSample(
            backend, kernel, int(match["space"] or 0), environment.host, environment.boot,
            times["enqueue_us"], times["enqueue_spread_us"],
            max(0.0, times["e2e_us"] - times["kernel_us"]), times["e2e_spread_us"],
            environment.gpu, times["kernel_us"], times["cold_us"] or None,
        )  # fmt: skip
        return key, match["time"], sample

    def _record(self, data: dict[str, object]) -> Record:
        time = _NAME(data["time"])
        environment = self.environments.get(_NAME(data["env"]))
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
            time,
        )

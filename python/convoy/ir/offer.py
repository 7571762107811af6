"""A candidate with its measurement, and all of them that a workload has."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import InvalidOption
from . import fields as checks
from .candidate import Candidate, Decline
from .measurement import Measurement
from .workload import Workload


@dataclass(frozen=True)
class Offer:
    """A candidate with its measurement."""

    candidate: Candidate
    measurement: Measurement

    def to_json(self) -> dict[str, object]:
        return {"candidate": self.candidate.to_json(), "measurement": self.measurement.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Offer:
        """Inverse of :meth:`to_json`; raises InvalidOption naming the field."""
        return checks.made(cls, data, _FIELDS, "offer", InvalidOption, _FIELDS)


_FIELDS: dict[str, checks.Check] = {
    "candidate": Candidate.from_json,
    "measurement": Measurement.from_json,
}


@dataclass(frozen=True)
class Offers:
    """All candidates of a workload with their measurements, failures and declines.

    Attributes:
        workload: The workload.
        measured: Candidates whose measurement is known, in the order of the backends.
        unmeasured: Candidates of which no measurement is known.
        failed: Candidates that could not be built or run; the measurement has the reason.
        declines: Backends that do not take the workload, and why.
    """

    workload: Workload
    measured: list[Offer] = field(default_factory=list)
    unmeasured: list[Candidate] = field(default_factory=list)
    failed: list[Offer] = field(default_factory=list)
    declines: list[Decline] = field(default_factory=list)

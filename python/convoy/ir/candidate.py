"""A kernel that can run a workload, and why a backend has none."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOption
from . import fields as checks


@dataclass(frozen=True, order=True)
class Candidate:
    """One way to run a workload.

    ``kernel`` names it for people and is unique within backend and workload; ``config`` is what
    the backend needs to build it again, as canonical JSON text; ``workspace`` is in bytes.
    ``priority`` breaks ties (lower first): the order in which the backend itself would try it.
    """

    backend: str
    kernel: str
    config: str = "{}"
    workspace: int = 0
    priority: int = 0
    deterministic: bool = True
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.backend}:{self.kernel}"

    def options(self) -> dict[str, Any]:
        """``config`` as a dictionary. Raises InvalidOption where it is none."""
        options = checks.parse_json(self.config, f"config of {self.key}", InvalidOption)
        if not isinstance(options, dict):
            raise InvalidOption(f"config of {self.key} = {self.config[:60]!r}", "a JSON object")
        return options

    def kernel_fields(self) -> dict[str, Any]:
        """The fields of the compiled kernel that it launches; none for a library's own. What they
        hold is for the backend to check. Raises InvalidOption where they are no object."""
        fields = self.options().get("kernel", {})
        if not isinstance(fields, dict):
            raise InvalidOption(
                f"kernel of {self.key} = {reprlib.repr(fields)}", "an object of kernel fields"
            )
        return fields

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Candidate:
        """Inverse of :meth:`to_json`; raises InvalidOption naming the field. What ``config`` holds
        is for the backend to check."""
        required = ("backend", "kernel")
        return cls(**checks.checked(data, _FIELDS, "candidate", InvalidOption, required))


_FIELDS: dict[str, checks.Check] = {
    "backend": checks.text(),
    "kernel": checks.text(1000),
    "config": checks.text(1 << 16),
    "workspace": checks.integer(0, 2**63 - 1),
    "priority": checks.integer(),
    "deterministic": checks.boolean,
    "notes": checks.tuple_of(checks.text(), most=100),
}


def make_config(**options: Any) -> str:
    """Canonical JSON text of a candidate's options: sorted keys, no spaces."""
    return json.dumps(options, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, order=True)
class Decline:
    """Why a backend does not take a workload: the attribute in the way, and a remedy."""

    backend: str
    reason: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

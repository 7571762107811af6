"""A kernel that can run a workload; the reason why a backend has none."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from dataclasses import dataclass

from ..errors import InvalidOption
from . import fields as checks


@dataclass(frozen=True, order=True)
class Candidate:
    """A kernel of a backend that can run a workload.

    Attributes:
        backend: Name of the backend.
        kernel: Readable name, unique within backend and workload.
        config: Everything that the backend needs to build it, as canonical JSON text.
        workspace: Bytes of workspace.
        priority: Breaks ties, lower first: the backend's own order.
        deterministic: Whether every run gives the same bits.
        notes: Remarks for tables.
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
        """Backend and kernel, as tables show them."""
        return f"{self.backend}:{self.kernel}"

    def options(self) -> dict[str, object]:
        """Parse ``config``. Raises InvalidOption if it is not a JSON object."""
        options = checks.parse_json(self.config, f"config of {self.key}", InvalidOption)
        if not isinstance(options, dict):
            raise InvalidOption(f"config of {self.key} = {self.config[:60]!r}", "a JSON object")
        return options

    def kernel_fields(self) -> dict[str, object]:
        """Return the fields of the compiled kernel; empty for kernels of a library. The backend
        checks their values. Raises InvalidOption if they are not a JSON object."""
        fields = self.options().get("kernel", {})
        if not isinstance(fields, dict):
            raise InvalidOption(
                f"kernel of {self.key} = {reprlib.repr(fields)}", "an object of kernel fields"
            )
        return fields

    def to_json(self) -> dict[str, object]:
        """Return all fields, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Candidate:
        """Inverse of :meth:`to_json`; raises InvalidOption naming the field. The backend checks
        ``config``."""
        required = ("backend", "kernel")
        return checks.made(cls, data, _FIELDS, "candidate", InvalidOption, required)


_FIELDS: dict[str, checks.Check] = {
    "backend": checks.text(),
    "kernel": checks.text(1000),
    "config": checks.text(1 << 16),
    "workspace": checks.integer(0, 2**63 - 1),
    "priority": checks.integer(),
    "deterministic": checks.boolean,
    "notes": checks.tuple_of(checks.text(), most=100),
}


def make_config(**options: object) -> str:
    """Canonical JSON text of a candidate's options: sorted keys, no spaces."""
    return json.dumps(options, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, order=True)
class Decline:
    """The reason why a backend does not support a workload, and a remedy."""

    backend: str
    reason: str
    remedy: str = ""

    def to_json(self) -> dict[str, object]:
        """Return all fields, for JSON."""
        return dataclasses.asdict(self)

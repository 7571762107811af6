"""A kernel that can run a workload, and why a backend has none."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any


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
        """``config`` as a dictionary."""
        return json.loads(self.config)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Candidate:
        return cls(**{**data, "notes": tuple(data.get("notes", ()))})


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

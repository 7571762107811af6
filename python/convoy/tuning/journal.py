"""What a run knew when it began, so that one that was killed goes on as if it had not been.

A run leaves workloads alone that records hold enough of, and its model learns from those. After a
kill, records also hold what the run itself has measured: the journal, a small file beside the
record file while a run is under way, tells the two apart.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..measure.record_file import unwritable
from ..workload import Workload


class Journal:
    """The journal of runs with this ``fingerprint``, all that decides what a run will do."""

    def __init__(self, records: Path, fingerprint: Any) -> None:
        self.path = records.with_name(records.name + ".run")
        text = json.dumps(fingerprint, sort_keys=True, default=str)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def begin(self, complete: Iterable[Workload]) -> set[str]:
        """Keys of the workloads that were complete when the run began: those given, or where an
        equal run was cut short, those of that run. Raises CacheUnwritable."""
        try:
            left = json.loads(self.path.read_text(encoding="utf-8"))
            if left["fingerprint"] == self._fingerprint:
                return set(left["complete"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none, or that of another run or version
        keys = sorted(workload.key for workload in complete)
        self._write({"fingerprint": self._fingerprint, "complete": keys})
        return set(keys)

    def end(self) -> None:
        """The run has come to its end."""
        self.path.unlink(missing_ok=True)

    def _write(self, content: dict[str, str | Sequence[str]]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content), encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as err:
            raise unwritable(self.path, err) from err

"""What a run knew when it began, and how it ended, so that no run does what is done already.

A run leaves workloads alone that records hold enough of, and its model learns from those. After a
kill, records also hold what the run itself has measured: the journal, a small file beside the
record file while a run is under way, tells the two apart. A run that came to its end notes how many
records each of its workloads had, which may be fewer than the budget allows: where nothing more is
worth measuring, an equal run need not find that out again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..ir.workload import Workload
from ..records.record_file import unwritable

#: Ended runs that are remembered beside one record file.
MOST_RUNS = 64


class Journal:
    """The journal of runs with this ``fingerprint``, all that decides what a run will do."""

    def __init__(self, records: Path, fingerprint: Any) -> None:
        self.path = records.with_name(records.name + ".run")
        self.ended = records.with_name(records.name + ".ended")
        text = json.dumps(fingerprint, sort_keys=True, default=str)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def begin(
        self, complete: Iterable[Workload], known: Mapping[str, int] | None = None
    ) -> set[str]:
        """Keys of the workloads that were complete when the run began: those given and those whose
        number of records (``known``, by key) is at least that at the end of an equal run; or where
        an equal run was cut short, those of that run. Raises CacheUnwritable."""
        left = _read(self.path)
        if left.get("fingerprint") == self._fingerprint and isinstance(left.get("complete"), list):
            return set(left["complete"])
        before = _read(self.ended).get(self._fingerprint, {})
        keys = {workload.key for workload in complete}
        keys |= {key for key, count in (known or {}).items() if count >= before.get(key, 1 << 62)}
        self._write(self.path, {"fingerprint": self._fingerprint, "complete": sorted(keys)})
        return keys

    def end(self, known: Mapping[str, int] | None = None) -> None:
        """The run is over; ``known`` unless its time was up before it had come to its end."""
        if known is not None:
            runs = _read(self.ended)
            runs.pop(self._fingerprint, None)
            runs[self._fingerprint] = dict(known)
            self._write(self.ended, dict(list(runs.items())[-MOST_RUNS:]))
        self.path.unlink(missing_ok=True)

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content), encoding="utf-8")
            os.replace(temporary, path)
        except OSError as err:
            raise unwritable(path, err) from err


def _read(path: Path) -> dict[str, Any]:
    """The content of a journal file; empty where there is none, or that of another version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}

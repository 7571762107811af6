"""The state in which a run began and ended, so that no run repeats work.

A run skips workloads with enough records, and its model learns from those. After a kill, the
records also contain what the run itself measured. The journal, a small file beside the record file
while a run is active, distinguishes the two. A run that was not cut short stores the number of
records of each of its workloads, which may be below the budget: an equal run then skips these
workloads as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeGuard

from ..atomic_file import replaced
from ..errors import InvalidOption
from ..ir import fields as checks
from ..ir.workload import Workload
from ..records.record_file import unwritable

#: Ended runs that are stored beside one record file.
MOST_RUNS = 64


class Journal:
    """The journal of runs with this ``fingerprint``: everything that determines a run, as JSON."""

    def __init__(self, records: Path, fingerprint: object) -> None:
        self.path = records.with_name(records.name + ".run")
        self.ended = records.with_name(records.name + ".ended")
        text = json.dumps(fingerprint, sort_keys=True, default=str)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def begin(
        self, complete: Iterable[Workload], known: Mapping[str, int] | None = None
    ) -> set[str]:
        """Begin a run, or resume an equal one that was cut short.

        Args:
            complete: Workloads with enough records.
            known: Number of records of each workload, by key.

        Returns:
            Keys of the workloads to skip: ``complete`` and those with as many records as at the end
            of an equal run. A resumed run gets those that it began with.

        Raises:
            CacheUnwritable: The journal cannot be written.
        """
        left = _read(self.path)
        complete_before = left.get("complete")
        if left.get("fingerprint") == self._fingerprint and _are_keys(complete_before):
            return set(complete_before)
        before = _counts(_read(self.ended).get(self._fingerprint))
        keys = {workload.key for workload in complete}
        keys |= {key for key, count in (known or {}).items() if count >= before.get(key, 1 << 62)}
        self._write(self.path, {"fingerprint": self._fingerprint, "complete": sorted(keys)})
        return keys

    def end(self, known: Mapping[str, int] | None = None) -> None:
        """End the run; ``known``, as above, unless the budget cut it short."""
        if known is not None:
            runs = _read(self.ended)
            runs.pop(self._fingerprint, None)
            runs[self._fingerprint] = dict(known)
            self._write(self.ended, dict(list(runs.items())[-MOST_RUNS:]))
        self.path.unlink(missing_ok=True)

    def _write(self, path: Path, content: Mapping[str, object]) -> None:
        try:
            with replaced(path) as file:
                file.write(json.dumps(content).encode())
        except OSError as err:
            raise unwritable(path, err) from err


def _read(path: Path) -> dict[str, object]:
    """Return the content of a journal file; empty for none, and for that of another version."""
    try:
        content = checks.parse_json(checks.read_bytes(path), "a journal", InvalidOption)
    except (OSError, InvalidOption):
        return {}
    return content if isinstance(content, dict) else {}


def _are_keys(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(key, str) for key in value)


def _counts(value: object) -> dict[str, int]:
    """Return numbers of records by key; none if any is of another type."""
    if isinstance(value, dict) and all(type(count) is int for count in value.values()):
        return value
    return {}

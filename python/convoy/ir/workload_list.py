"""Lists of workloads as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..errors import InvalidOption
from .workload import Workload, without_defaults


def write(path: Path, workloads: Iterable[Workload]) -> int:
    """Write distinct workloads, one a line, in their order; returns how many."""
    distinct = list(dict.fromkeys(workloads))
    lines = [json.dumps(without_defaults(w), separators=(",", ":")) + "\n" for w in distinct]
    path.write_text("".join(lines), encoding="utf-8")
    return len(distinct)


def read(path: Path) -> list[Workload]:
    """Distinct workloads of a file, one JSON object a line; objects with a ``workload`` field,
    such as lines of records, are taken as well.

    Raises InvalidOption for a missing file or a line that is not JSON, InvalidWorkload.
    """
    if not path.is_file():
        raise InvalidOption(f"workload list {path}, which does not exist", "an existing file")
    return parse(path.read_text(encoding="utf-8").splitlines(), str(path))


def parse(lines: Iterable[str], source: str = "") -> list[Workload]:
    """As :func:`read`, of lines. Lines of a record file that state an environment are left out."""
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            raise InvalidOption(
                f"{source or 'workload list'}, line {number}: {line[:60]!r}",
                "one workload a line, as JSON",
            ) from None
        if "environment" not in data:
            found.append(Workload.from_json(data.get("workload", data)))
    return list(dict.fromkeys(found))

"""Lists of workloads as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..errors import InvalidOption, InvalidWorkload
from ..paths import check_file
from . import fields as checks
from .compact import without_defaults
from .workload import Workload


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
    check_file(path, "workload list")
    try:
        text = checks.read_bytes(path).decode()
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidOption(
            f"workload list {path}, which cannot be read ({err})", "UTF-8 text of at most 64 MiB"
        ) from None
    return parse(text.splitlines(), str(path))


def parse(lines: Iterable[str], source: str = "") -> list[Workload]:
    """Parse lines like :func:`read`. Lines of a record file that state an environment are
    skipped."""
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = checks.parse_json(line, "a line", InvalidOption)
        except InvalidOption:
            data = None
        if not isinstance(data, dict):
            raise InvalidOption(
                f"{source or 'workload list'}, line {number}: {line[:60]!r}",
                "one workload a line, as JSON",
            )
        if "environment" in data:
            continue
        try:
            found.append(Workload.from_json(data.get("workload", data)))
        except InvalidWorkload as err:
            place = f"{source or 'workload list'}, line {number}: {err.got}"
            raise InvalidWorkload(place, err.expected, err.remedy) from None
    return list(dict.fromkeys(found))

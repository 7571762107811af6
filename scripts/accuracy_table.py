"""Tables of the errors of all candidates against float64, from tests/gpu/test_backward_gpu.py.

    CONVOY_GPU_REPORT=report.jsonl pytest tests/gpu/test_backward_gpu.py
    python scripts/accuracy_table.py report.jsonl other.jsonl --out accuracy.json

A line for each direction, precision and backend: problems, candidates, how many are wrong, and the
worst error of those that are right. ``--out`` writes the same as JSON, wrong candidates by name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from convoy.report.tables import markdown
from harness.rows import environment, write

Line = dict[str, Any]
COLUMNS = (
    "op", "precision", "backend", "problems", "candidates", "wrong", "worst error of the right",
    "limit",
)  # fmt: skip


def read(paths: Iterable[Path]) -> list[Line]:
    """Lines of all reports, the last of each candidate; a line that was cut off is left out."""
    found: dict[tuple[str, str], Line] = {}
    for path in paths:
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
                found[line["workload"], line["candidate"]] = line
            except (ValueError, KeyError):
                continue
    return list(found.values())


def is_right(line: Line) -> bool:
    return line["error"] is not None and line["error"] <= line["limit"]


def summary(lines: Iterable[Line]) -> list[Line]:
    groups: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line["op"], line["precision"], line["candidate"].split(":")[0]].append(line)
    rows = []
    for (op, precision, backend), group in sorted(groups.items()):
        right = [line["error"] for line in group if is_right(line)]
        about: Line = {"op": op, "precision": precision, "backend": backend}
        about |= {"problems": len({line["workload"] for line in group}), "candidates": len(group)}
        about |= {"wrong": len(group) - len(right), "worst": max(right, default=None)}
        rows.append({**about, "limit": max(line["limit"] for line in group)})
    return rows


def table(rows: Iterable[Line]) -> str:
    def cells(row: Line) -> list[Any]:
        worst = "-" if row["worst"] is None else f"{row['worst']:.1e}"
        return [*list(row.values())[:6], worst, f"{row['limit']:.0e}"]

    return markdown(COLUMNS, [cells(row) for row in rows])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("reports", nargs="+", type=Path)
    made.add_argument("--out", type=Path, help="JSON file to write")
    return made


def main() -> None:
    options = parser().parse_args()
    lines = read(options.reports)
    rows = summary(lines)
    print(table(rows))
    wrong = [line for line in lines if not is_right(line)]
    for line in wrong:
        print(f"wrong: {line['workload']} {line['candidate']}: {line['error']}")
    if options.out:
        title = "gradients against float64"
        write(options.out, title=title, environment=environment(), rows=rows, wrong=wrong)


if __name__ == "__main__":
    main()

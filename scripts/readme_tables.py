"""Render the tables of docs/benchmarks.md from benchmarks/results, between its markers.

    python scripts/readme_tables.py           rewrite docs/benchmarks.md
    python scripts/readme_tables.py --check   exit code 1 when the page is not up to date

A results file is written by scripts/bench_networks.py or bench_models.py:
``{"environment": {...}, "rows": [...]}`` with ``system``, ``model``, ``batch`` and ``ms`` (or
``failed``, ``skipped``) in each row, and ``benchmark`` where ``ms`` is not the time of an
inference. Rows with none of the three are not timed (references). Files with other rows are named
on standard error and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy.report import tables

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs", "benchmarks.md")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
NONE_YET = "There are no results yet.\n"


@dataclass(frozen=True)
class Results:
    """One results file."""

    path: Path
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    what: str = "inference"


def read(folder: Path) -> Iterator[Results]:
    """The files of a folder that hold timed rows, in order of their names."""
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        rows = data.get("rows") if isinstance(data, dict) else None
        if not rows or not all({"system", "model", "batch"} <= set(row) for row in rows):
            print(f"{path}: no rows of system, model and batch, left out", file=sys.stderr)
            continue
        timed = [row for row in rows if {"ms", "failed", "skipped"} & set(row)]
        yield Results(path, data.get("environment", {}), timed, data.get("benchmark", "inference"))


def cell(row: dict[str, Any] | None) -> str:
    """Milliseconds, or "failed" or "skipped"."""
    if row is None:
        return ""
    if (ms := row.get("ms")) is not None:
        return f"{ms:.3f}" if ms >= 0.1 else f"{ms:.4f}"
    return "failed" if "failed" in row else "skipped"


def table(results: Results) -> str:
    """Milliseconds: a row for each network and batch, a column for each system."""
    systems = list(dict.fromkeys(row["system"] for row in results.rows))
    cases = sorted({(row["model"], row["batch"]) for row in results.rows})
    found = {(row["model"], row["batch"], row["system"]): row for row in results.rows}
    rows = [
        [model, batch, *(cell(found.get((model, batch, system))) for system in systems)]
        for model, batch in cases
    ]
    return tables.markdown(["network", "N", *systems], rows)


def caption(results: Results, root: Path) -> str:
    labels = {"gpu": "", "driver": "driver ", "cuda": "CUDA ", "cudnn": "cuDNN "}
    environment = results.environment
    known = [f"{labels[name]}{environment[name]}" for name in labels if environment.get(name)]
    where = os.path.relpath(results.path, (root / PAGE).parent)
    return f"[{results.path.stem}]({where}): {', '.join(known) or 'environment not recorded'}."


def render(root: Path) -> str:
    """The section between the markers."""
    parts = []
    for folder in sorted(p for p in (root / "benchmarks" / "results").glob("*") if p.is_dir()):
        for results in read(folder):
            parts.append(f"{caption(results, root)} Milliseconds per {results.what}:\n")
            parts.append(table(results) + "\n")
    return "\n".join(parts) or NONE_YET


def replace_section(text: str, section: str) -> str:
    """The text with a new section between its markers. Raises ValueError without them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"expected one {BEGIN} and one {END}")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{section}{END}{rest.split(END)[1]}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--check", action="store_true", help="change nothing, only compare")
    return made


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    options = parser().parse_args(arguments)
    page = root / PAGE
    old = page.read_text()
    new = replace_section(old, render(root))
    if options.check:
        if old != new:
            print(f"{PAGE} is not up to date: python scripts/readme_tables.py")
        return int(old != new)
    page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())

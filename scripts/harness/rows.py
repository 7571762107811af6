"""Rows of a benchmark: measured with progress, written as JSON with one row on a line."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Row = dict[str, Any]


def one(measure: Callable[..., Row], *args: Any) -> list[Row]:
    """The row of a function, as ``Bench.run_many`` takes rows."""
    return [measure(*args)]


class Bench:
    """Run cases one after another; a case that fails becomes a row with the reason.

    Args:
        title: The unit that is timed, such as "inference"; kept as ``benchmark`` in the file.
        out: JSON file, written after every case so that an interrupted run leaves its rows;
            none if empty.
    """

    def __init__(self, title: str, out: str | Path = "") -> None:
        self.title, self.out = title, out
        self.rows: list[Row] = []
        self._names: list[str] = []

    def run(self, cases: Sequence[tuple[Row, Callable[[], Row]]]) -> None:
        """Run cases: the fixed cells of a row and a function that returns the measured ones."""
        with progress() as bar:
            task = bar.add_task(self.title, total=len(cases))
            for fixed, measure in cases:
                bar.update(task, description=", ".join(map(str, fixed.values())))
                self.run_many(fixed, functools.partial(one, measure))
                bar.advance(task)

    def run_many(self, fixed: Row, measure: Callable[[], list[Row]]) -> None:
        """Run one case that returns several rows; each gets the fixed cells that it lacks."""
        started = time.perf_counter()
        try:
            rows = [{**fixed, **row} for row in measure()]
        except Exception as err:  # the other cases still have to be measured
            rows = [{**fixed, "failed": f"{type(err).__name__}: {err}"[-1500:]}]
        rows[0].setdefault("took_s", round(time.perf_counter() - started, 1))
        for row in rows:
            self.rows.append(row)
            self._names.append(", ".join(str(row[key]) for key in fixed))
            if not sys.stderr.isatty():
                print(json.dumps(row), flush=True)
        self.save()

    def save(self, **facts: Any) -> None:
        """Write the rows, the environment and further ``facts`` to the file, if there is one."""
        if self.out:
            about = {"benchmark": self.title, "environment": environment(), **facts}
            write(self.out, **about, rows=self.rows)

    def failures(self) -> int:
        """Print each failure; returns their number."""
        rows = zip(self._names, self.rows, strict=True)
        failed = [(name, row["failed"]) for name, row in rows if "failed" in row]
        for name, reason in failed:
            print(f"not measured: {name}: {reason}")
        return len(failed)


def progress() -> Progress:
    """A progress bar on standard error."""
    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def environment() -> Row:
    """GPU, driver, libraries, hash of the kernel sources, CPU of this machine."""
    from convoy.records import environment

    return environment.current().to_json()


def write(path: str | Path, **data: Any) -> None:
    """Write a results file; a list of dicts or lists has one item on a line."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(dumps(data), encoding="utf-8")


def dumps(data: Row) -> str:
    """JSON text of a results file: one line for each key, one for each row of a list."""
    parts = []
    for key, value in data.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            text = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"

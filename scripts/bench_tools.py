"""What the benchmarks of streams and launches share: rows with progress, a table, a JSON file."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Row = dict[str, Any]


class Bench:
    """Runs cases one after another; a case that fails becomes a row that says why.

    ``out`` is written after every case, so that an interrupted run leaves what it measured.
    """

    def __init__(self, title: str, out: str = "") -> None:
        self.title, self.out = title, out
        self.rows: list[Row] = []

    def run(self, cases: Sequence[tuple[Row, Callable[[], Row]]]) -> None:
        """Each case is a row's fixed cells and a function that returns the measured ones."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(self.title, total=len(cases))
            for fixed, measure in cases:
                progress.update(task, description=", ".join(map(str, fixed.values())))
                self.run_many(fixed, lambda measure=measure: [measure()])
                progress.advance(task)

    def run_many(self, fixed: Row, measure: Callable[[], list[Row]]) -> None:
        """One case that returns several rows; each gets the fixed cells that it lacks."""
        started = time.perf_counter()
        try:
            rows = [{**fixed, **row} for row in measure()]
        except Exception as err:  # the other cases still have to be measured
            rows = [{**fixed, "failed": f"{type(err).__name__}: {err}"[-1500:]}]
        rows[0]["took_s"] = round(time.perf_counter() - started, 1)
        for row in rows:
            self.rows.append(row)
            if not sys.stderr.isatty():
                print(json.dumps(row), flush=True)
        self.save()

    def save(self) -> None:
        if not self.out:
            return
        from convoy.records import environment

        result = {
            "benchmark": self.title,
            "environment": environment.current().to_json(),
            "rows": self.rows,
        }
        Path(self.out).write_text(json.dumps(result, indent=1) + "\n")

    def failures(self) -> int:
        """Prints each failure and returns how many there were."""
        failed = [row for row in self.rows if "failed" in row]
        for row in failed:
            name = ", ".join(str(v) for k, v in row.items() if k not in ("failed", "took_s"))
            print(f"not measured: {name}: {row['failed']}")
        return len(failed)


def median_us(samples_ms: Sequence[float]) -> float:
    """Median in microseconds of samples in milliseconds."""
    return 1e3 * statistics.median(samples_ms)


def spread_us(samples_ms: Sequence[float]) -> float:
    """Half the distance between the 10th and the 90th percentile, in microseconds."""
    ordered = sorted(samples_ms)
    last = len(ordered) - 1
    return 1e3 * (ordered[round(0.9 * last)] - ordered[int(0.1 * last)]) / 2

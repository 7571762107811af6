"""Progress of a tuning run on a terminal or in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..ir.candidate import Candidate
from ..ir.workload import Workload
from ..report.tables import printable
from .job import Result
from .observer import Observer
from .space import Space

#: Seconds between two lines where the output is no terminal.
LINE_EVERY_S = 10.0


class ShowProgress(Observer):
    """A progress bar with the best so far, the rate and the time left.

    Where standard error is no terminal, a line every LINE_EVERY_S seconds. A context manager.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.1f}/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._trials: int | None = None
        self._best: dict[Workload, float] = {}
        self._started = time.monotonic()
        self._printed = self._started
        self._total = self._done = self._measured = self._failed = 0

    def __enter__(self) -> ShowProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, workloads: int, trials: int | None) -> None:
        self._trials = trials
        self._task = self._bar.add_task(f"{workloads} workloads", total=None, rate=0.0)

    def proposed(self, space: Space) -> None:
        count = len(space.candidates)
        self._total += count if self._trials is None else min(count, self._trials)
        self._show(f"{space.workload.key}: {count} candidates")

    def reused(self, workload: Workload, candidate: Candidate) -> None:
        self._done += 1

    def result(self, result: Result, best_us: float | None) -> None:
        self._done += 1
        self._measured += 1
        self._failed += not result.measurement.ok
        if best_us is not None:
            self._best[result.workload] = best_us
        best = "none ran yet" if best_us is None else f"best {best_us:.2f} us"
        self._show(f"{result.workload.key}: {best}")
        if not result.measurement.ok:
            self._console.print(
                printable(
                    f"{result.workload.key} {result.candidate.key}: {result.measurement.failure}"
                ),
                style="yellow",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def _show(self, text: str) -> None:
        now = time.monotonic()
        rate = self._measured / max(1e-9, now - self._started)
        if self._task is not None:
            self._bar.update(
                self._task, total=self._total, completed=self._done, rate=rate, description=text
            )
        if not self._console.is_terminal and now - self._printed > LINE_EVERY_S:
            self._printed = now
            total = sum(self._best.values())
            print(
                f"{self._done} of {self._total}, {rate:.1f}/s, {self._failed} failed; "
                f"sum of the best {total:.1f} us; {text}",
                file=sys.stderr,
                flush=True,
            )

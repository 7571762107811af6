"""Progress of long work: stages, counts and time left, on a terminal, in logs, by callback."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress
    import rich.table

#: Called with what is being done, how many steps are done, and of how many (0: not known).
Progress = Callable[[str, int, int], None]

_log = logging.getLogger("convoy")


class Stages:
    """Report the stages of a build, one after the other.

    An instance is itself a :data:`Progress`: each call is a step of the current stage.

    Args:
        callback: Called for every stage and step instead of drawing a bar. Without one a bar is
            drawn on standard error where that is a terminal. The log ``convoy`` gets a line when a
            stage begins and one with its seconds when it ends in any case.
    """

    def __init__(self, callback: Progress | None = None) -> None:
        self._callback = callback
        self._bar: rich.progress.Progress | None = None
        self._task: Any = None

    def __call__(self, label: str, done: int, total: int) -> None:
        if self._callback is not None:
            self._callback(label, done, total)
        elif self._bar is not None:
            from rich.markup import escape  # names of kernels come from files

            detail = escape(label)
            self._bar.update(self._task, completed=done, total=total or None, detail=detail)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Report the enclosed work as one stage with a readable name such as ``measure
        kernels``."""
        started = time.monotonic()
        _log.info("%s ...", name)
        outer = self._bar
        if self._callback is not None:
            self._callback(name, 0, 0)
        elif outer is None and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
        if self._bar is not None:
            previous, self._task = self._task, self._bar.add_task(name, total=None, detail="")
        try:
            yield
        finally:
            _log.info("%s: %.1f s", name, time.monotonic() - started)
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._task = previous
                if outer is None:
                    self._bar.stop()
                    self._bar = None


def stages(progress: Progress | None) -> Stages:
    """The stages of a caller that already reports them, or new ones that call ``progress``."""
    return progress if isinstance(progress, Stages) else Stages(progress)


def _bar() -> rich.progress.Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("[dim]{task.fields[detail]}", table_column=_narrow()),
        console=Console(stderr=True),
        transient=True,
    )


def _narrow() -> rich.table.Column:
    from rich.table import Column

    return Column(max_width=24, no_wrap=True, overflow="ellipsis")

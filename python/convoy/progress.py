"""Progress of long work: stages, counts and time left, on a terminal, in logs, by callback."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .errors import InvalidOption

if TYPE_CHECKING:
    import rich.progress
    import rich.table

#: Called with what is being done, how many steps are done, and of how many (0: not known).
Progress = Callable[[str, int, int], None]

#: Seconds after which work counts as long, and seconds between two lines with counts.
_LONG_S, _LINE_EVERY_S = 0.5, 2.0
_log = logging.getLogger("convoy")
_RUNNING: ContextVar[Stages | None] = ContextVar("running", default=None)


class Stages:
    """Report the stages of a build, one after the other.

    An instance is itself a :data:`Progress`: each call is a step of the current stage.

    Args:
        callback: Called for every stage and step instead of drawing a bar. Without one a bar is
            drawn on standard error where that is a terminal.

    The log ``convoy`` gets a line when a stage begins, one with its seconds when it ends, and one
    with counts every two seconds. Where there is neither a callback, a terminal, nor a handler of
    logs, standard error gets the lines of work that takes longer than half a second.
    """

    def __init__(self, callback: Progress | None = None) -> None:
        self._callback = callback
        self._bar: rich.progress.Progress | None = None
        self._task: Any = None
        self._name = ""
        self._began = self._told = time.monotonic()

    def __call__(self, label: str, done: int, total: int) -> None:
        if self._callback is not None:
            self._callback(label, done, total)
        elif self._bar is not None:
            from rich.markup import escape  # names of kernels come from files

            detail = escape(label)
            self._bar.update(self._task, completed=done, total=total or None, detail=detail)
        if time.monotonic() - self._told > _LINE_EVERY_S:
            self._tell(f"{self._name}: {done} of {total or 'unknown'} ({label})")

    def _tell(self, line: str) -> None:
        """Write a line to the log, or to standard error if nobody would see it otherwise."""
        self._told = time.monotonic()
        _log.info("%s", line)
        if self._callback is not None or self._bar is not None or _log.hasHandlers():
            return
        if sys.stderr is not None and self._told - self._began > _LONG_S:
            with suppress(OSError, ValueError):  # nobody reads it any more
                print(f"convoy: {line}", file=sys.stderr, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Report the enclosed work as one stage with a readable name such as ``measure
        kernels``."""
        started, outer, around = time.monotonic(), self._bar, self._name
        if not around:
            self._began = started
        self._name, token = name, _RUNNING.set(self)
        if self._callback is not None:
            self._callback(name, 0, 0)
        elif outer is None and _on_terminal():
            self._bar = _bar()
            self._bar.start()
        if self._bar is not None:
            previous, self._task = self._task, self._bar.add_task(name, total=None, detail="")
        self._tell(f"{name} ...")
        try:
            yield
        finally:
            self._tell(f"{name}: {time.monotonic() - started:.1f} s")
            self._name = around
            _RUNNING.reset(token)
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._task = previous
                if outer is None:
                    self._bar.stop()
                    self._bar = None


def stages(progress: Progress | None) -> Stages:
    """The stages of a caller that already reports them, or new ones that call ``progress``."""
    if progress is not None and not callable(progress):
        raise InvalidOption(
            f"progress={progress!r}", "a function of a stage, what is done, and all"
        )
    return progress if isinstance(progress, Stages) else Stages(progress)


def running() -> Stages:
    """The stages that this thread is reporting, or new ones."""
    return _RUNNING.get() or Stages()


def step(label: str, done: int, total: int) -> None:
    """Report a step of the stage that this thread is in, if it is in any."""
    if (stages := _RUNNING.get()) is not None:
        stages(label, done, total)


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


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

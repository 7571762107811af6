"""The work of a function, counted in calls: it is the same on every machine."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Work:
    """The calls of functions, Python's and C's."""

    calls: int = 0


@contextmanager
def counted() -> Iterator[Work]:
    """Count the calls that the block makes, also where it raises."""
    work, profile = Work(), cProfile.Profile()
    profile.enable()
    try:
        yield work
    finally:
        profile.disable()
        work.calls = sum(entry.callcount for entry in profile.getstats())


def calls(run: Callable[[], object]) -> int:
    """Count the calls that a function makes."""
    with counted() as work:
        run()
    return work.calls

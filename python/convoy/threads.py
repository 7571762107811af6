"""Lock for TVM's compiler, which keeps state for the whole process; thread pool for work that does
not hold the GIL."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: Held while TVM parses, converts, rewrites or compiles; functions that hold it may call another.
_COMPILING = threading.RLock()
#: ``frozen``: whether this thread holds the lock and has frozen the objects that were there.
_HELD = threading.local()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function wait for other threads that convert, place or compile."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _COMPILING, _old_objects_kept():
            return function(*args, **kwargs)

    return locked


@contextmanager
def _old_objects_kept() -> Iterator[None]:
    """Exclude old objects from garbage collection while many new ones are made: with PyTorch and
    TVM imported, scanning half a million old objects takes 0.3 s each time. Objects that were
    frozen by other code stay frozen. Counting frozen objects takes 0.1 s, so that only the
    outermost function does."""
    if getattr(_HELD, "frozen", False) or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    _HELD.frozen = True
    try:
        yield
    finally:
        _HELD.frozen = False
        gc.unfreeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off while modules are imported, which live as long as the process: it
    would scan them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def workers() -> int:
    """Number of threads that :func:`in_threads` uses at most: one for each core, up to 8."""
    return min(8, len(os.sched_getaffinity(0)))


def in_threads(
    function: Callable[[T], R],
    items: Sequence[T],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[R]:
    """``[function(item) for item in items]`` on several threads; ``progress`` is called by this one
    with the number of results, zero first, and the number of items."""

    def counted(results: Iterable[R]) -> Iterator[R]:
        progress(0, len(items))
        for done, result in enumerate(results, 1):
            progress(done, len(items))
            yield result

    threads = min(workers(), len(items))
    if threads <= 1:
        return list(counted(map(function, items)))
    with ThreadPoolExecutor(threads) as pool:
        return list(counted(pool.map(function, items)))

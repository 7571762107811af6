"""One thread at a time in TVM's compiler, which keeps state for the whole process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: Held while TVM parses, converts, rewrites or compiles; functions that hold it may call another.
_COMPILING = threading.RLock()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function wait for other threads that convert, place or compile."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _COMPILING:
            return function(*args, **kwargs)

    return locked

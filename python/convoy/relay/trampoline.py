"""Recursion without Python's stack, for programs nested thousands deep.

A handler that needs the result of another one is a generator: it yields the other handler's
generator and gets its result back. `run` keeps the pending handlers on a list.
"""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any

Step = Generator[Any, Any, Any]


def run(first: Any) -> Any:
    """Run a handler: return what a generator returns, anything else as it is."""
    stack: list[Step] = []
    value = first
    while True:
        if isinstance(value, GeneratorType):
            stack.append(value)
            value = None
        elif not stack:
            return value
        try:
            value = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value

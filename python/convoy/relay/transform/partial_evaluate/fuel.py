"""Bound on unrolling a recursion: its known arguments have to become smaller."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from convoy.relay import adt
from convoy.relay.ast import Constant, Function
from convoy.relay.evaluate.values import Closure

# Calls that one function may inline: also a recursion that ends may be too long to unroll.
_MAX_CALLS = 10_000
_Measures = tuple[float, ...]


class Fuel:
    """The calls that are being inlined, each with the least sizes of its arguments so far."""

    def __init__(self) -> None:
        self._active: dict[Function, _Measures] = {}
        self._calls = 0

    def measure(self, closure: Closure, args: Sequence[Any]) -> _Measures | None:
        """Return the sizes of a call that may be inlined, None for one that may not.

        A call inside a call of the same function may be inlined if an argument, or the age of the
        closure, is smaller than in all the calls around it. These are natural numbers, which do
        not become smaller forever.
        """
        found = (float(closure.serial), *map(_size, args))
        around = self._active.get(closure.function)
        if around is not None:
            if not any(a < b for a, b in zip(found, around, strict=True)):
                return None
            found = tuple(map(min, found, around))
        self._calls += 1
        return found if self._calls <= _MAX_CALLS else None

    @contextmanager
    def entered(self, function: Function, sizes: _Measures | None) -> Generator[None]:
        """Take a function as active; without sizes only known arguments let it be inlined."""
        before = self._active.get(function)
        unknown = (-1.0,) + (float("inf"),) * len(function.params)
        self._active[function] = unknown if sizes is None else sizes
        yield
        if before is None:
            del self._active[function]
        else:
            self._active[function] = before


def _size(value: Any) -> float:
    """Return the number of constructors of known data, or the value of a known integer."""
    total, stack = 0.0, [value]
    while stack:
        part = stack.pop()
        if isinstance(part, adt.ConstructorValue):
            total += 1
            stack.extend(part.fields)
        elif part is value:
            return _number(part)
    return total


def _number(value: Any) -> float:
    if isinstance(value, Constant) and value.value.size == 1 and value.value.dtype.kind in "iu":
        number = int(value.value.item())
        return number if number >= 0 else float("inf")
    return float("inf")

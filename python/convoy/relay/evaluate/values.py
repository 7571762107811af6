"""Values that are no tensors, and the scopes that hold values."""

from __future__ import annotations

from itertools import count
from typing import Any

from convoy.relay.ast import Expr, Function

MISSING: Any = object()
_serials = count()


class Frame:
    """The values of one call of a function.

    Attributes:
        values: The value of each variable and of each node that was computed.
        outer: The frame that the function closes over.
    """

    def __init__(self, outer: Frame | None = None) -> None:
        self.values: dict[Expr, Any] = {}
        self.outer = outer

    def find(self, node: Expr) -> Any:
        """Return a value, MISSING before it is computed."""
        frame: Frame | None = self
        while frame is not None:
            found = frame.values.get(node, MISSING)
            if found is not MISSING:
                return found
            frame = frame.outer
        return MISSING


class Closure:
    """A function with the frame that it closes over.

    Attributes:
        name: The variable or global that it is bound to, for errors.
        serial: Its number: a closure that was made earlier has a smaller one.
    """

    def __init__(self, function: Function, frame: Frame, name: str = "") -> None:
        self.function, self.frame, self.name = function, frame, name
        self.serial = next(_serials)

"""`tvm.runtime.container`: what executors return for tuples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm


class ADT(list[Any]):
    """The fields of a tuple, or of a value of an algebraic data type.

    Attributes:
        tag: The number of the constructor; 0 for a tuple.
    """

    def __init__(self, tag: int, fields: Iterable[Any]) -> None:
        super().__init__(fields)
        self.tag = tag


def tuple_object(fields: Iterable[Any] | None = None) -> ADT:
    """Make a tuple."""
    return ADT(0, fields or ())


String = str
ShapeTuple = tvm.runtime.ShapeTuple
Array, Map = list, dict

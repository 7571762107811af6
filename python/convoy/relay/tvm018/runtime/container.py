"""`tvm.runtime.container`: what executors return for tuples and data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm

from convoy.relay.adt import ADT


def tuple_object(fields: Iterable[Any] | None = None) -> ADT:
    """Make a tuple."""
    return ADT(0, fields or ())


String = str
ShapeTuple = tvm.runtime.ShapeTuple
Array, Map = list, dict

__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String", "tuple_object"]

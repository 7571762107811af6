"""Common parts of the problems that kernel libraries with a C ABI of their own take from Python."""

from __future__ import annotations

import ctypes
from typing import TypeVar

from convoy.errors import InvalidOption
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

T = TypeVar("T")


def require(part: T | None, w: Workload, expected: str) -> T:
    """Return a part of a workload. Raises InvalidOption if the workload has none."""
    if part is None:
        raise InvalidOption(f"workload {w.key}", expected)
    return part


def clip(epilogue: Epilogue) -> tuple[float, float]:
    """``clip_min`` and ``clip_max`` of an activation, as in ``ConvoyShape``."""
    return epilogue.alpha or epilogue.clip_min, epilogue.clip_max


def pointers(*names: str) -> list[tuple[str, type[ctypes.c_void_p]]]:
    """Fields of a struct of device addresses."""
    return [(name, ctypes.c_void_p) for name in names]

"""Translate CUDA errors: out of memory, and a lost GPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import ConvoyError, GpuLost, OutOfMemory

P = ParamSpec("P")
R = TypeVar("R")

_OUT_OF_MEMORY = re.compile(
    r"out of memory|MemoryAllocation|ALLOC_FAILED|RESOURCE_EXHAUSTED", re.IGNORECASE
)
#: After these errors (such as cudaErrorIllegalAddress) every CUDA call in the process fails.
_LOST = re.compile(
    r"illegal (memory access|instruction)|misaligned address|invalid program counter"
    r"|device-side assert|unspecified launch failure|launch timed out|hardware stack error"
    r"|uncorrectable|context is destroyed|GPU is lost|fallen off the bus"
    r"|device\(s\) is/are busy or unavailable|no CUDA-capable device|unknown error",
    re.IGNORECASE,
)


def raise_fault(error: BaseException) -> None:
    """Raise OutOfMemory or GpuLost for an error of CUDA that means so; return for any other."""
    if isinstance(error, ConvoyError):
        return
    text = str(error)
    said = next((line.strip() for line in text.splitlines() if _known(line)), "")[:200]
    if _OUT_OF_MEMORY.search(said):
        raise OutOfMemory(
            f"a GPU without free memory ({said})",
            "room for the network's weights and activations",
            "Free some, or use a smaller batch; sessions that exist still run.",
        ) from error
    if said:
        raise GpuLost(
            f"a GPU that fails ({said})",
            "a working one",
            "Nothing in this process can use it any more: start a new one, or serve through "
            "convoy.IsolatedSession, which does so by itself.",
        ) from error


def _known(line: str) -> bool:
    return bool(_OUT_OF_MEMORY.search(line) or _LOST.search(line))


def raises_faults(method: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises OutOfMemory and GpuLost for errors of CUDA."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except RuntimeError as error:
            raise_fault(error)
            raise

    return call

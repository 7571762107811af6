"""Registry of backends: Convoy's, and those of other packages.

A package adds one by an entry point in the group ``convoy.backends`` that names a
:class:`~convoy.backends.base.Backend` class.
"""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import entry_points

from ..errors import InvalidOption
from .base import Backend

GROUP = "convoy.backends"
BUILT_IN = {
    "cudnn": "convoy.backends.cudnn:CudnnBackend",
    "cutlass": "convoy.backends.kernels.cutlass.family:cutlass_backend",
    "hopper": "convoy.backends.kernels.sm90.family:sm90_backend",
    "depthwise": "convoy.backends.kernels.depthwise.family:depthwise_backend",
    "attention": "convoy.backends.kernels.attention.family:attention_backend",
    "cublaslt": "convoy.backends.cublaslt:CublasLtBackend",
    "tvm": "convoy.backends.tvm:TvmBackend",
}


def names() -> list[str]:
    """All registered backends, convoy's own first."""
    return [*BUILT_IN, *sorted({e.name for e in entry_points(group=GROUP)} - BUILT_IN.keys())]


@functools.cache
def get(name: str) -> Backend:
    """The backend of that name; one instance for the process. Raises InvalidOption."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.load()()
    raise InvalidOption(f"backend {name!r}", f"one of {', '.join(names())}")

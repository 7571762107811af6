"""Resolve the options of a build: backends, precision, whether to measure."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence

import tvm

from ..backends import registry
from ..backends.base import Backend
from ..cost.model import CostModel
from ..errors import InvalidOption, NoGpu
from ..graph.function import main_function
from ..ir.device import Device
from ..partition import patterns

SEARCH = "exact"


def find_backends(names: Sequence[str | Backend]) -> list[Backend]:
    """Backends by name; backends themselves stay. Their patterns are registered.

    Raises InvalidOption for an unknown name, and for anything but several.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        example = names if isinstance(names, str) else "cudnn"
        raise InvalidOption(f"backends={names!r}", f"several, such as ({example!r}, 'tvm')")
    found = [name if isinstance(name, Backend) else registry.get(name) for name in names]
    for backend in found:
        for pattern in backend.patterns():
            patterns.register(pattern)
    return found


def default_precision(mod: tvm.IRModule) -> str:
    """float16, and a line in the log where this changes what the network was written in."""
    if any("float32" in str(param.ty) for param in main_function(mod)[1].params):
        _say_once(
            'a float32 network is compiled in float16; precision="float32" or "tf32" keeps it'
        )
    return "float16"


@functools.cache
def _say_once(text: str) -> None:
    logging.getLogger("convoy").warning(text)


def may_measure(
    costs: str | CostModel | None, device: Device, measure: bool | None, present: Device | None
) -> bool:
    """Return whether candidates are measured, on the GPU that is ``present``.

    Raises NoGpu if that is asked for and there is none.
    """
    measure = True if costs == "measured" else measure
    measure = (present == device and costs is None) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    return measure

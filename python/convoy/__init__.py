"""Convoy places every convolution of a network on cuDNN or CUTLASS by measured cost.

Names are imported on first use: ``import convoy`` needs neither TVM nor a GPU.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import errors as errors
    from . import graph_executor as graph_executor
    from . import relay as relay
    from .backends.base import Backend as Backend
    from .backends.base import Candidate as Candidate
    from .backends.base import Decline as Decline
    from .backends.base import Device as Device
    from .build import build as build
    from .compiled import CompiledModule as CompiledModule
    from .compiled import load as load
    from .errors import ConvoyError as ConvoyError
    from .measure.measurement import Measurement as Measurement
    from .parallel import parallel as parallel
    from .placement.plan import Plan as Plan
    from .placer import Placement as Placement
    from .placing import place as place
    from .schedule.plan import Schedule as Schedule
    from .session import Session as Session
    from .workload import Epilogue as Epilogue
    from .workload import Workload as Workload

# Public name -> module that has it; a module itself stands under its own name.
_PUBLIC = {
    "build": "build",
    "place": "placing",
    "load": "compiled",
    "parallel": "parallel",
    "CompiledModule": "compiled",
    "Placement": "placer",
    "Session": "session",
    "Plan": "placement.plan",
    "Schedule": "schedule.plan",
    "Workload": "workload",
    "Epilogue": "workload",
    "Device": "backends.base",
    "Backend": "backends.base",
    "Candidate": "backends.base",
    "Decline": "backends.base",
    "Measurement": "measure.measurement",
    "ConvoyError": "errors",
}
_MODULES = ("errors", "graph_executor", "relay")

__all__ = [*_PUBLIC, *_MODULES, "__version__"]


class _Package(types.ModuleType):
    """Keeps ``convoy.build`` the function, whoever imports the module of that name first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PUBLIC and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _preload_cuda() -> None:
    """TVM's CUDA runtime needs libcudart.so.13 and, where only a wheel has it, fails in silence
    unless it is loaded before the first ``import tvm``, which may be a script's next line."""
    if "tvm" not in sys.modules:
        from .runtime.library import preload_cudart

        preload_cudart()


_preload_cuda()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Select a cuDNN, cuBLASLt, CUTLASS or native kernel for each operator of a network by cost.

Names are imported on first use: ``import convoy`` needs neither TVM nor a GPU.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import errors as errors
    from . import graph_executor as graph_executor
    from . import relay as relay
    from .backends.base import Backend as Backend
    from .errors import ConvoyError as ConvoyError
    from .frontend.onnx import from_onnx as from_onnx
    from .frontend.parallel import parallel as parallel
    from .inference_session import InferenceSession as InferenceSession
    from .ir.candidate import Candidate as Candidate
    from .ir.candidate import Decline as Decline
    from .ir.device import Device as Device
    from .ir.epilogue import Epilogue as Epilogue
    from .ir.measurement import Measurement as Measurement
    from .ir.plan import Plan as Plan
    from .ir.schedule import Schedule as Schedule
    from .ir.workload import Workload as Workload
    from .pipeline import build as build
    from .pipeline import place as place
    from .placement.placement import Placement as Placement
    from .pytorch.compile import compile as compile
    from .runtime.compiled import CompiledModule as CompiledModule
    from .runtime.compiled import load as load
    from .runtime.isolated import IsolatedSession as IsolatedSession
    from .runtime.session import Session as Session

# Public name -> its module; modules have their own names.
_PUBLIC = {
    "build": "pipeline",
    "place": "pipeline",
    "compile": "pytorch.compile",
    "load": "runtime.compiled",
    "from_onnx": "frontend.onnx",
    "parallel": "frontend.parallel",
    "CompiledModule": "runtime.compiled",
    "InferenceSession": "inference_session",
    "IsolatedSession": "runtime.isolated",
    "Placement": "placement.placement",
    "Session": "runtime.session",
    "Plan": "ir.plan",
    "Schedule": "ir.schedule",
    "Workload": "ir.workload",
    "Epilogue": "ir.epilogue",
    "Device": "ir.device",
    "Backend": "backends.base",
    "Candidate": "ir.candidate",
    "Decline": "ir.candidate",
    "Measurement": "ir.measurement",
    "ConvoyError": "errors",
}
_MODULES = ("errors", "graph_executor", "relay")

__all__ = [*_PUBLIC, *_MODULES, "__version__"]


def _preload_cuda() -> None:
    """TVM's CUDA runtime needs libcudart.so.13 and, where only a wheel has it, fails in silence
    unless it is loaded before the first ``import tvm``, which may be a script's next line."""
    if "tvm" not in sys.modules:
        from .runtime.library import preload_cudart

        preload_cudart()


_preload_cuda()


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        from .threads import uncollected

        with uncollected():
            value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

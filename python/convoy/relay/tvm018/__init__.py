"""TVM 0.18's own namespace, as far as scripts with Relay in them use it.

    from convoy.relay import tvm018 as tvm

Names that later versions dropped or changed are here as they were (`tvm.nd.array`, `tvm.IRModule`
of Relay functions, targets as command lines, `tvm.ir.save_json` of Relay modules, Relay's keys in a
PassContext); any other name, and any other module, is that of the installed TVM. What no version
has today raises `RemovedFromTvm` when it is used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm as _tvm

from convoy import relay
from convoy.relay import api as parser
from convoy.relay.module import IRModule
from convoy.relay.removed import Removed, remedy
from convoy.relay.transform.context import build_config
from convoy.relay.tvm018 import (
    _ffi,
    container,
    contrib,
    error,
    ir,
    nd,
    rpc,
    runtime,
    target,
    te,
    tir,
    transform,
)
from convoy.relay.tvm018._ffi import register_func
from convoy.relay.tvm018.convert import convert
from convoy.relay.tvm018.device import TVMContext, context, cpu, cuda, device, gpu
from convoy.relay.tvm018.error import TVMError
from convoy.relay.tvm018.ir import instrument
from convoy.relay.tvm018.modules import MOVED, install
from convoy.relay.tvm_members import add_members

add_members()
install()

#: Modules of this package, which are imported when a script names them.
_FILES = {file.stem for file in Path(__file__).parent.iterdir()}

__version__ = "0.18.0"
__all__ = [
    "IRModule",
    "TVMError",
    "TVMContext",
    "_ffi",
    "build_config",
    "container",
    "context",
    "contrib",
    "convert",
    "cpu",
    "cuda",
    "device",
    "error",
    "gpu",
    "instrument",
    "ir",
    "nd",
    "parser",
    "register_func",
    "relay",
    "rpc",
    "runtime",
    "target",
    "te",
    "tir",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # `__path__` of the installed TVM would be imported from
        raise AttributeError(name)
    if name in MOVED or name in _FILES:
        return importlib.import_module(f"{__name__}.{name}")
    if hasattr(_tvm, name):
        return getattr(_tvm, name)
    if remedy(name):
        return Removed(name)
    if find_spec(f"tvm.{name}"):  # `testing`, which TVM imports only on demand
        return importlib.import_module(f"tvm.{name}")
    for module in (te, tir, ir):  # until TVM 0.6, their names were here
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"tvm has no {name}")

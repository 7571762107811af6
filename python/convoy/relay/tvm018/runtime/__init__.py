"""`tvm.runtime`: loading what was exported, and parameter files."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

from convoy.errors import CorruptArtefact
from convoy.relay import vm
from convoy.relay.loading import load_module as _load_network
from convoy.relay.params import load_param_dict, save_param_dict
from convoy.relay.tvm018 import nd as ndarray
from convoy.relay.tvm018.convert import convert
from convoy.relay.tvm018.modules import forward
from convoy.relay.tvm018.nd import NDArray
from convoy.relay.tvm018.runtime import container, executor, profiling

__all__ = [
    "NDArray",
    "PackedFunc",
    "String",
    "container",
    "convert",
    "executor",
    "load_module",
    "load_param_dict",
    "ndarray",
    "profiling",
    "save_param_dict",
    "vm",
]


def load_module(path: Any, fmt: str = "") -> Any:
    """Load a network that Convoy exported, or any module that TVM can load."""
    del fmt
    try:
        return _load_network(path)
    except CorruptArtefact:
        return tvm.runtime.load_module(path)


String = str
PackedFunc = tvm_ffi.Function

__getattr__ = forward("tvm.runtime")

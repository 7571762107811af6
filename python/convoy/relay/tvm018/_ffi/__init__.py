"""`tvm._ffi`: functions by name."""

from __future__ import annotations

from typing import Any

import tvm

from convoy.relay.tvm018._ffi import base

get_global_func = tvm.get_global_func
register_func = tvm.register_global_func
register_object = tvm.register_object

__all__ = ["base", "get_global_func", "register_func", "register_object"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tvm._ffi has no {name}; functions of today's TVM are in tvm_ffi")

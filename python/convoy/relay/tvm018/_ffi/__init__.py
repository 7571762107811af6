"""`tvm._ffi`: functions by name."""

from __future__ import annotations

import tvm

from convoy.relay.removed import removed_names
from convoy.relay.tvm018._ffi import base

get_global_func = tvm.get_global_func
register_func = tvm.register_global_func
register_object = tvm.register_object

__all__ = ["base", "get_global_func", "register_func", "register_object"]

__getattr__ = removed_names("_ffi")

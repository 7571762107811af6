"""`tvm.module`: modules under their path of 2019."""

from __future__ import annotations

import tvm

from convoy.relay.tvm018.runtime import load_module as load

Module = tvm.runtime.Module

__all__ = ["Module", "load"]

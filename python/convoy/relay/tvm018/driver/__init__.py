"""`tvm.driver`: TVM's compiler, and `tvmc`, which calls Convoy's."""

from __future__ import annotations

from convoy.relay.tvm018.driver import tvmc
from convoy.relay.tvm018.modules import forward

__all__ = ["tvmc"]

__getattr__ = forward("tvm.driver")

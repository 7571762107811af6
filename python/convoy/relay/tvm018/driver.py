"""`tvm.driver`: TVM's compiler; its command line `tvmc` was removed."""

from __future__ import annotations

from convoy.relay.tvm018.modules import forward

__path__: list[str] = []  # `from tvm.driver import tvmc` finds the stand-in

__getattr__ = forward("tvm.driver")

"""`tvm.tir`, which TVM now calls `tirx`."""

from convoy.relay.tvm018.modules import forward
from convoy.relay.types import Any

__all__ = ["Any"]

__getattr__ = forward("tvm.tirx")

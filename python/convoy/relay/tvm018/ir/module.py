"""`tvm.ir.module`."""

from convoy.relay.module import IRModule

__all__ = ["IRModule"]

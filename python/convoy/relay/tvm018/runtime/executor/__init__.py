"""`tvm.runtime.executor`."""

from convoy.relay.tvm018.runtime.executor.aot_executor import AotModule

__all__ = ["AotModule"]

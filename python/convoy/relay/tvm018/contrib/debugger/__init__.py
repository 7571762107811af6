"""`tvm.contrib.debugger`: the executor that profiles."""

from convoy.relay.tvm018.contrib.debugger import debug_executor

debug_runtime = debug_executor  # until TVM 0.7

__all__ = ["debug_executor", "debug_runtime"]

"""`tvm.runtime.executor.aot_executor`: runs what `relay.build` made for the executor "aot"."""

from convoy.graph_executor import GraphModule as AotModule

__all__ = ["AotModule"]

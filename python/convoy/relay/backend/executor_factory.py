"""`relay.backend.executor_factory`: what `relay.build` returns, under its former path."""

from convoy.graph_executor import GraphExecutorFactoryModule

ExecutorFactoryModule = GraphExecutorFactoryModule
AOTExecutorFactoryModule = GraphRuntimeFactoryModule = GraphExecutorFactoryModule

__all__ = [
    "AOTExecutorFactoryModule",
    "ExecutorFactoryModule",
    "GraphExecutorFactoryModule",
    "GraphRuntimeFactoryModule",
]

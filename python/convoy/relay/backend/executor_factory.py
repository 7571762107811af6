"""`relay.backend.executor_factory`: what `relay.build` returns, under its former path."""

from convoy.graph_executor import GraphExecutorFactoryModule

__all__ = ["GraphExecutorFactoryModule"]

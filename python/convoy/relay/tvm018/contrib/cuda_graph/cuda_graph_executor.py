"""`tvm.contrib.cuda_graph.cuda_graph_executor`: a graph executor that replays a CUDA graph.

Networks built for a GPU capture and replay one in any executor, so this one has names only.
"""

from __future__ import annotations

from typing import Any

from convoy.graph_executor import GraphModule
from convoy.graph_executor import create as _create


class GraphModuleCudaGraph(GraphModule):
    """A GraphModule whose runs can be captured first."""

    def capture_cuda_graph(self) -> None:
        """Run once, which captures the graph."""
        self.run()

    def run_cuda_graph(self) -> None:
        """Replay the graph."""
        self.run()


def create(graph_json_str: str, libmod: Any, device: Any) -> GraphModuleCudaGraph:
    """Make a GraphModuleCudaGraph of the three parts that iterating over a built library yields."""
    return GraphModuleCudaGraph(_create(graph_json_str, libmod, device).module)

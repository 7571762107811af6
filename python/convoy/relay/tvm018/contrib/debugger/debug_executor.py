"""`tvm.contrib.debugger.debug_executor`: a graph executor that profiles.

A built network runs as fused kernels, so a profile is of those; results between operators are read
by making them outputs.
"""

from __future__ import annotations

from typing import Any

from convoy.errors import InvalidOption
from convoy.graph_executor import Executor, GraphModule
from convoy.graph_executor import create as _create


class GraphModuleDebug(GraphModule):
    """A GraphModule that profiles.

    Args:
        module: What `lib["default"](dev)` or `lib["debug_create"]("default", dev)` returns.
        device, graph_json_str, dump_root: Accepted.
    """

    def __init__(
        self, module: Executor, device: Any = None, graph_json_str: str = "", dump_root: Any = None
    ) -> None:
        super().__init__(module)
        del graph_json_str, dump_root
        self._device = device[0] if isinstance(device, (list, tuple)) else device

    def profile(self, collectors: Any = None, **input_dict: Any) -> Any:
        """Time the network as a whole; `convoy report` has the times of its kernels.

        Args:
            collectors: Must be empty.
            **input_dict: Inputs by name.
        """
        if collectors:
            raise InvalidOption("collectors", "none")
        self.set_input(**input_dict)
        device = self._device if self._device is not None else self.get_output(0).device
        return self.benchmark(device)

    def run_individual(self, number: int, repeat: int = 1, min_repeat_ms: int = 0) -> list[float]:
        """Time the network as a whole, in seconds."""
        device = self._device if self._device is not None else self.get_output(0).device
        times = self.benchmark(device, "run", repeat, number, min_repeat_ms)
        return list(times.results)


def create(
    graph_json_str: str, libmod: Any, device: Any, dump_root: Any = None
) -> GraphModuleDebug:
    """Make a GraphModuleDebug of the three parts that iterating over a built library yields."""
    del dump_root
    return GraphModuleDebug(_create(graph_json_str, libmod, device).module, device)

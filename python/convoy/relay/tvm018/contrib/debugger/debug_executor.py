"""`tvm.contrib.debugger.debug_executor`: a graph executor that profiles.

A built network runs as fused kernels, so a profile is of those; results between operators are read
by making them outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn

from convoy.errors import InvalidOption
from convoy.graph_executor import Executor, GraphModule
from convoy.graph_executor import create as _create
from convoy.relay.tvm018.runtime.profiling import Report


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

    def profile(self, collectors: Any = None, **input_dict: Any) -> Report:
        """Time each kernel of one run, waiting for the device behind each.

        A replayed CUDA graph is one call; `convoy report` has the times of its kernels.

        Args:
            collectors: Must be empty.
            **input_dict: Inputs by name.
        """
        if collectors:
            raise InvalidOption("collectors", "none")
        self.run(**input_dict)
        device = self._device if self._device is not None else self.get_output(0).device
        clock = _Clock(device)
        self._session.observe(clock.watch)
        try:
            whole = clock.timed(self.run)
        finally:
            self._session.observe(None)
        calls = clock.calls or [("network", whole)]
        return Report(
            [_row(whole, us, Name=name) for name, us in calls],
            {str(device): _row(whole, whole)},
            {"Executor": "Graph"},
        )

    def debug_get_output(self, node: object, out: object = None) -> NoReturn:
        """Refuse: the operators of a built network are fused into kernels."""
        raise InvalidOption(
            f"a result between operators, {node!r}",
            "an output",
            "Make it a result of the function: relay.analysis.extract_intermdeiate_expr(mod, n)",
        )

    get_node_output = execute_node = run_individual_node = debug_get_output

    def exit(self) -> None:
        """Do nothing: no files are written."""

    def run_individual(self, number: int, repeat: int = 1, min_repeat_ms: int = 0) -> list[float]:
        """Return the seconds of each node of the graph's JSON: 0 of inputs, the network's."""
        device = self._device if self._device is not None else self.get_output(0).device
        times = self.benchmark(device, "run", repeat, number, min_repeat_ms)
        return [0.0] * self.get_num_inputs() + [times.mean]


class _Clock:
    """An observer of calls that times kernels.

    Attributes:
        calls: Names and microseconds.
    """

    def __init__(self, device: Any) -> None:
        self.calls: list[tuple[str, float]] = []
        self._device, self._start = device, 0.0

    def watch(self, _function: Any, name: str, before: bool, _result: Any, *_args: Any) -> None:
        """See `Session.observe`."""
        if name.startswith("vm.builtin."):
            return
        self._device.sync()
        if before:
            self._start = time.perf_counter()
        else:
            self.calls.append((name, (time.perf_counter() - self._start) * 1e6))

    def timed(self, run: Callable[[], None]) -> float:
        """Run; return the microseconds."""
        start = time.perf_counter()
        run()
        self._device.sync()
        return (time.perf_counter() - start) * 1e6


def _row(whole: float, us: float, **name: str) -> dict[str, Any]:
    return {**name, "Duration (us)": us, "Percent": 100 * us / whole, "Count": 1}


def create(
    graph_json_str: str, libmod: Any, device: Any, dump_root: Any = None
) -> GraphModuleDebug:
    """Make a GraphModuleDebug of the three parts that iterating over a built library yields."""
    del dump_root
    return GraphModuleDebug(_create(graph_json_str, libmod, device).module, device)

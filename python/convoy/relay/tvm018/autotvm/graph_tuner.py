"""`tvm.autotvm.graph_tuner`: layouts of a whole network, which placement chooses by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.measuring import keep_best

__all__ = ["DPTuner", "PBQPTuner"]


class DPTuner:
    """Passes on the log of the tasks' tuner.

    Args:
        graph, input_shapes: Accepted.
        records: The file that tuners of tasks wrote.
        *args, **kwargs: Accepted.
    """

    def __init__(
        self, graph: Any, input_shapes: Any, records: Any, *args: Any, **kwargs: Any
    ) -> None:
        del graph, input_shapes, args, kwargs
        self._records = records

    def benchmark_layout_transform(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: placement estimates conversions between layouts."""

    def run(self, **kwargs: Any) -> None:
        """Do nothing: `relay.build` places the network."""

    def write_opt_sch2record_file(self, record_file: Any = "graph_opt_schedule.log") -> None:
        """Write the fastest candidates of the log, for `apply_graph_best`."""
        Path(record_file).unlink(missing_ok=True)
        keep_best(self._records, record_file)


PBQPTuner = DPTuner

__getattr__ = removed_names("autotvm.graph_tuner")

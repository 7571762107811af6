"""`tvm.autotvm`: the tuner of templates, whose tasks and logs are those of Convoy's tuner.

Templates and schedules of scripts (`template`, `get_config`, `FallbackContext`) were removed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.history import History
from convoy.relay.tuning.options import LocalBuilder, LocalRunner, RPCRunner
from convoy.relay.tvm018.autotvm import callback, graph_tuner, record, task, tophub, tuner

__all__ = [
    "LocalBuilder",
    "LocalRunner",
    "RPCRunner",
    "apply_graph_best",
    "apply_history_best",
    "callback",
    "graph_tuner",
    "measure_option",
    "record",
    "task",
    "tophub",
    "tuner",
]

apply_history_best = apply_graph_best = ApplyHistoryBest = ApplyGraphBest = History


def measure_option(builder: Any, runner: Any) -> SimpleNamespace:
    """Return where kernels are compiled and measured, for the `tune` of a tuner."""
    return SimpleNamespace(builder=builder, runner=runner)


__getattr__ = removed_names("autotvm")

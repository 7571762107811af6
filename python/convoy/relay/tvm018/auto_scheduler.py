"""`tvm.auto_scheduler`: the tuner of networks, whose tasks and logs are those of Convoy's tuner.

Tasks of a script's own tensor expressions (`register_workload`, `SearchTask`) were removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.history import History
from convoy.relay.tuning.measuring import Log, measure
from convoy.relay.tuning.options import (
    LocalBuilder,
    LocalRunner,
    RPCRunner,
    SearchOption,
    check_runner,
)
from convoy.relay.tuning.tasks import Task, tasks_of
from convoy.tune.budget import Budget

__all__ = [
    "ApplyHistoryBest",
    "HardwareParams",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "RPCRunner",
    "RecordToFile",
    "TaskScheduler",
    "TuningOptions",
    "extract_tasks",
]

ApplyHistoryBest = ApplyHistoryBestOrSample = History
RecordToFile = Log
SketchPolicy = XGBModel = RandomModel = PreloadMeasuredStates = SearchOption


class HardwareParams:
    """The machine that TVM's search is for: without effect, since Convoy asks the GPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class LocalRPCMeasureContext:
    """Has a `runner` of this machine; options have no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.runner = LocalRunner()


@dataclass
class TuningOptions:
    """The limits of a run.

    Attributes:
        num_measure_trials: Candidates to measure in the whole run.
        early_stopping: Candidates of a task without an improvement after which to leave it.
        num_measures_per_round: Accepted.
        verbose: Accepted.
        builder, runner: Where kernels are compiled and measured.
        measure_callbacks: `RecordToFile(file)` names the file of the results.
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Sequence[Any] | None = None


def extract_tasks(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    target_host: Any = None,
    hardware_params: Any = None,
    include_simple_tasks: bool = False,
    **options: Any,
) -> tuple[list[Task], list[int]]:
    """Return the tasks of a network, and a weight of 1 for each; see `tasks_of`.

    Other arguments have no effect: simple operators are compiled by TVM without tuning.
    """
    del target_host, hardware_params, include_simple_tasks, options
    tasks = tasks_of(mod, target, params)
    return tasks, [1] * len(tasks)


class TaskScheduler:
    """Tunes the tasks of a network in one run.

    Args:
        tasks: Those of `extract_tasks`.
        task_weights, *args, **kwargs: Accepted; every task gets its share of the trials.
        load_log_file: Accepted: what the log of the run holds is not measured again.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        task_weights: Sequence[float] | None = None,
        *args: Any,
        load_log_file: Any = None,
        **kwargs: Any,
    ) -> None:
        del task_weights, args, load_log_file, kwargs
        self.tasks = list(tasks)

    def tune(self, tune_option: TuningOptions, *args: Any, **kwargs: Any) -> None:
        """Measure candidates; on a CPU, only warn that there is nothing to measure.

        Raises:
            InvalidOption: A runner on another machine.
            NoGpu, LibraryMissing: See `autotune`.
        """
        check_runner(tune_option.runner)
        if tune_option.num_measure_trials > 0:
            patience = tune_option.early_stopping
            budget = Budget(
                trials=None,
                measurements=tune_option.num_measure_trials,
                patience=patience if patience and patience > 0 else None,
            )
            callbacks = list(tune_option.measure_callbacks or ())
            measure(self.tasks, budget, callbacks, tuner_object=self)


__getattr__ = removed_names("auto_scheduler")

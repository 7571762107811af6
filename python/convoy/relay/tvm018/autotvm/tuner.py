"""`tvm.autotvm.tuner`: tuners of one task, by the search that each stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from convoy.relay.removed import removed_names
from convoy.relay.tuning.measuring import measure
from convoy.relay.tuning.options import check_runner
from convoy.relay.tuning.tasks import Task
from convoy.relay.tvm018.autotvm import callback
from convoy.tune.budget import Budget

__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "XGBTuner", "callback"]


class _Tuner:
    """Tunes one task.

    Args:
        task: One of `extract_from_program`.
        *args, **kwargs: Options of TVM's search, without effect.
    """

    search: ClassVar[str]

    def __init__(self, task: Task, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        self.task = task

    def load_history(self, data_set: Any, min_seed_records: int = 500) -> None:
        """Do nothing: the cost model learns from all records by itself."""

    def reset(self) -> None:
        """Do nothing: what is recorded is not measured again."""

    def tune(
        self,
        n_trial: int,
        measure_option: Any = None,
        early_stopping: int | None = None,
        callbacks: Sequence[Any] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure candidates; on a CPU, only warn that there is nothing to measure.

        Args:
            n_trial: Candidates to measure.
            measure_option: What `measure_option` returned.
            early_stopping: Candidates without an improvement after which to stop.
            callbacks: `callback.log_to_file(file)` names the file of the results; default: the
                user's records.
            si_prefix: Accepted.

        Raises:
            InvalidOption: A runner on another machine.
            NoGpu, LibraryMissing: See `autotune`.
        """
        del si_prefix
        check_runner(getattr(measure_option, "runner", None))
        if n_trial > 0:
            budget = Budget(trials=n_trial, patience=early_stopping or None)
            measure([self.task], budget, callbacks, self.search, self)


class XGBTuner(_Tuner):
    """Measures what a model of gradient-boosted trees ranks first."""

    search = "model"


class GATuner(_Tuner):
    """Measures what the same model ranks first; there is no genetic search."""

    search = "model"


class RandomTuner(_Tuner):
    """Measures at random."""

    search = "random"


class GridSearchTuner(_Tuner):
    """Measures in the backends' own order."""

    search = "order"


__getattr__ = removed_names("autotvm.tuner")

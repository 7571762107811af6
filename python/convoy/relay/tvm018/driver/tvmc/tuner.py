"""Tuning a model."""

from __future__ import annotations

from typing import Any

from convoy.relay.tuning.measuring import Log, measure
from convoy.relay.tuning.options import RPCRunner, check_runner
from convoy.relay.tuning.tasks import tasks_of
from convoy.relay.tvm018.driver.tvmc.model import TVMCModel
from convoy.tune.budget import Budget

_SEARCHES = {"random": "random", "gridsearch": "order"}


def tune(
    tvmc_model: TVMCModel,
    target: Any,
    tuning_records: str | None = None,
    prior_records: str | None = None,
    enable_autoscheduler: bool = False,
    rpc_key: str | None = None,
    *args: Any,
    trials: int = 10000,
    tuner: str = "xgb",
    early_stopping: int | None = None,
    **options: Any,
) -> str:
    """Measure candidates of a model; on a CPU, only warn that there is nothing to measure.

    Args:
        tvmc_model: The model.
        target: As `relay.build` takes it.
        tuning_records: The file for the results, which are not measured again.
        prior_records, enable_autoscheduler: Accepted.
        rpc_key: Must be None.
        trials: Candidates to measure in the whole run.
        tuner: "random" and "gridsearch" name a search, all others the one by a cost model.
        early_stopping: Candidates of a task without an improvement after which to leave it.
        *args, **options: Accepted.

    Returns:
        The file, for `compile`.

    Raises:
        InvalidOption: An `rpc_key`.
        NoGpu, LibraryMissing: See `autotune`.
    """
    del prior_records, enable_autoscheduler, args, options
    check_runner(RPCRunner() if rpc_key else None)
    log = Log(tuning_records or tvmc_model.default_tuning_records_path())
    budget = Budget(trials=None, measurements=trials, patience=early_stopping or None)
    tasks = tasks_of(tvmc_model.mod, target, tvmc_model.params)
    measure(tasks, budget, [log], _SEARCHES.get(tuner, "model"))
    return str(log.path)


tune_model = tune

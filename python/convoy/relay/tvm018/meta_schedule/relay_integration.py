"""`tvm.meta_schedule.relay_integration`: tuning and compiling Relay networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay import vm
from convoy.relay.build import build
from convoy.relay.removed import removed_names
from convoy.relay.tuning.measuring import Log, measure
from convoy.relay.tuning.options import check_runner
from convoy.relay.tuning.tasks import Task, tasks_of
from convoy.relay.tvm018.meta_schedule.database import JSONDatabase
from convoy.tune.budget import Budget


def extract_tasks(
    mod: Any, target: Any, params: Mapping[str, Any] | None, **options: Any
) -> list[Task]:
    """Return the tasks of a network; see `tasks_of`."""
    del options
    return tasks_of(mod, target, params)


def tune_relay(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    work_dir: Any,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    database: Any = None,
    runner: Any = "local",
    **options: Any,
) -> JSONDatabase:
    """Measure candidates of a network; on a CPU, only warn that there is nothing to measure.

    Args:
        mod, params, target: As `relay.build` takes them.
        work_dir: The folder for the results.
        max_trials_global: Candidates to measure in the whole run.
        max_trials_per_task: Candidates of each task.
        database: A JSONDatabase to use instead of one in `work_dir`.
        runner: Where to measure.
        **options: Of TVM's search, without effect.

    Returns:
        The results, for `compile_relay`.

    Raises:
        InvalidOption: A runner on another machine.
        NoGpu, LibraryMissing: See `autotune`.
    """
    del options
    check_runner(runner)
    found = database if isinstance(database, JSONDatabase) else JSONDatabase(work_dir=work_dir)
    budget = Budget(trials=max_trials_per_task, measurements=max_trials_global)
    measure(tasks_of(mod, target, params), budget, [Log(found.path)])
    return found


def compile_relay(
    database: JSONDatabase,
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None,
    backend: str = "graph",
    **options: Any,
) -> Any:
    """Compile a network by the results of tuning, with `relay.build`, or `relay.vm.compile` where
    `backend` is "vm"; other options have no effect."""
    del options
    compiler = vm.compile if backend == "vm" else build
    with database:
        return compiler(mod, target=target, params=params)


__getattr__ = removed_names("meta_schedule.relay_integration")

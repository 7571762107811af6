"""Measuring tasks by Convoy's tuner, with the callbacks of TVM's."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.record import Record
from convoy.records.store import RecordStore
from convoy.relay.tuning.tasks import Task
from convoy.tune import autotune as tuner
from convoy.tune.budget import Budget
from convoy.tune.job import Result
from convoy.tune.observer import Observer, Outcome


class MeasureInput(NamedTuple):
    """The trial that a callback hears of."""

    target: Any
    task: Task
    config: Candidate


class MeasureResult(NamedTuple):
    """Its outcome: seconds in `costs`, or the reason of a failure and a number other than 0."""

    costs: tuple[float | str, ...]
    error_no: int
    all_cost: float
    timestamp: float


#: Takes the tuner and the lists of inputs and results, as TVM's callbacks do.
Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


class Log:
    """A callback that names the file for the results, which the tuner itself writes.

    Args:
        file: Its path, or an open file.
    """

    def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
        del args, kwargs  # formats of TVM's logs
        self.path = Path(file.name if hasattr(file, "write") else os.fspath(file))

    def __call__(self, *args: Any) -> None:
        """Leave the result to the tuner."""


def measure(
    tasks: Sequence[Task],
    budget: Budget,
    callbacks: Sequence[Any] = (),
    search: str = "model",
    tuner_object: Any = None,
) -> Outcome:
    """Measure candidates of tasks.

    Tasks for a CPU are left out with a warning, since there TVM's own kernels are compiled.

    Args:
        tasks: The tasks.
        budget: Limits of the run.
        callbacks: A `Log` names the file of the results (default: the user's records); the others
            hear of each result.
        search: See `autotune`.
        tuner_object: What callbacks are given first.

    Raises:
        NoGpu, LibraryMissing: See `autotune`.
    """
    logs = [callback.path for callback in callbacks if isinstance(callback, Log)]
    for path in logs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    by_workload = {task.workload: task for task in tasks if task.kind == "cuda"}
    if len(by_workload) < len(tasks):
        warnings.warn(
            "kernels for a CPU are TVM's own and are not tuned; relay.build compiles them as they "
            "are",
            stacklevel=3,
        )
    if not by_workload:
        return Outcome()
    return tuner.autotune(
        list(by_workload),
        records=logs[0] if logs else None,
        backends=tuple(dict.fromkeys(b for task in tasks for b in task.backends)),
        search=search,
        budget=budget,
        observer=_Callbacks(by_workload, callbacks, tuner_object),
    )


class _Callbacks(Observer):
    """Calls TVM's callbacks with each result."""

    def __init__(
        self, tasks: dict[Workload, Task], callbacks: Sequence[Callback], tuner_object: Any
    ) -> None:
        self._tasks, self._callbacks, self._tuner = tasks, callbacks, tuner_object

    def result(self, result: Result, best_us: float | None) -> None:
        task = self._tasks[result.workload]
        given = [MeasureInput(task.target, task, result.candidate)]
        found = [outcome(result.measurement, result.seconds)]
        for callback in self._callbacks:
            callback(self._tuner, given, found)


def outcome(measurement: Measurement, seconds: float = 0.0) -> MeasureResult:
    """Return a measurement in TVM's form."""
    if measurement.kernel_us is None or not measurement.ok:
        return MeasureResult((measurement.failure,), 4, seconds, time.time())
    return MeasureResult((measurement.kernel_us * 1e-6,), 0, seconds, time.time())


def records(file: Any) -> Iterator[Record]:
    """Yield the records of a log."""
    yield from RecordStore([Path(os.fspath(file))])


def keep_best(source: Any, destination: Any) -> None:
    """Add to a file the fastest candidate of each backend for each workload of another file."""
    timed = [(r.measurement.kernel_us, r) for r in records(source) if r.measurement.ok]
    slowest_first = sorted(timed, key=lambda pair: pair[0] or 0.0, reverse=True)
    best = {(record.workload.key, record.candidate.backend): record for _, record in slowest_first}
    Path(destination).touch()
    RecordStore(write_to=Path(destination)).extend(best.values())

"""`tvm.autotvm.record`: reading and thinning the files that tuners write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.measuring import (
    MeasureInput,
    MeasureResult,
    keep_best,
    outcome,
    records,
)
from convoy.relay.tuning.tasks import Task

__all__ = ["load_from_file", "pick_best"]


def load_from_file(file: Any) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield the trials of a file and their results."""
    for record in records(file):
        task = Task(record.workload, "cuda")
        yield MeasureInput("cuda", task, record.candidate), outcome(record.measurement)


def pick_best(in_file: Any, out_file: Any) -> None:
    """Add the fastest candidates of a file to another one; see `keep_best`."""
    keep_best(in_file, out_file)


__getattr__ = removed_names("autotvm.record")

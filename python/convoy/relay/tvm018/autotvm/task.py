"""`tvm.autotvm.task`: the tasks of a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.history import History
from convoy.relay.tuning.tasks import Task, tasks_of

__all__ = ["ApplyGraphBest", "ApplyHistoryBest", "Task"]

ApplyHistoryBest = ApplyGraphBest = History


def extract_from_program(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    target_host: Any = None,
    ops: Collection[Any] | None = None,
) -> list[Task]:
    """Return the tasks of a network; see `tasks_of`."""
    del target_host
    return tasks_of(mod, target, params, ops)


def extract_from_multiple_program(
    mods: Sequence[Any],
    params: Sequence[Mapping[str, Any] | None],
    target: Any,
    target_host: Any = None,
    ops: Collection[Any] | None = None,
) -> list[Task]:
    """Return the tasks of several networks, without duplicates."""
    del target_host
    pairs = zip(mods, params, strict=True)
    return list(dict.fromkeys(t for m, p in pairs for t in tasks_of(m, target, p, ops)))


__getattr__ = removed_names("autotvm.task")

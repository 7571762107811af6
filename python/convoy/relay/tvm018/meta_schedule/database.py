"""`tvm.meta_schedule.database`: the file that tuning a Relay network writes, and TVM's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convoy.relay.tuning.history import History
from convoy.relay.tvm018.modules import forward


class JSONDatabase:
    """A file of Convoy's records.

    Args:
        path_workload: Accepted; a record holds its workload.
        path_tuning_record: The file.
        work_dir: The folder of the file, where no file is given.
        *args, **kwargs: Accepted.
    """

    def __init__(
        self,
        path_workload: Any = None,
        path_tuning_record: Any = None,
        *args: Any,
        work_dir: Any = None,
        **kwargs: Any,
    ) -> None:
        del path_workload, args, kwargs
        folder = Path(work_dir) if work_dir is not None else Path()
        self.path = Path(path_tuning_record or folder / "database_tuning_record.json")
        self._entered: list[History] = []

    def __enter__(self) -> JSONDatabase:
        self._entered.append(History(self.path).__enter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().__exit__(*exc)


__getattr__ = forward("tvm.s_tir.meta_schedule.database")

"""The log that `relay.build` reads: what tuners of TVM call the history."""

from __future__ import annotations

import contextlib
import os
import warnings
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any

from convoy.errors import CorruptRecords
from convoy.records.store import RecordStore, RecordsWarning

_current: ContextVar[Path | None] = ContextVar("history", default=None)


class History:
    """A context in which `relay.build` places the network by the records of a log.

    Args:
        records: The file that a tuner wrote, or an object with its path; None for none.

    A file without a record of Convoy, such as a log of TVM's, has no effect, and a warning says so.
    """

    def __init__(self, records: Any = None, *args: Any, **kwargs: Any) -> None:
        del args, kwargs  # how TVM reads its own logs
        self._path: Path | None = None
        if records is not None:
            path = Path(os.fspath(getattr(records, "path", records)))
            if _has_records(path):
                self._path = path
            elif not path.is_file() or path.stat().st_size:  # a tuner for a CPU leaves it empty
                warnings.warn(
                    f"{path} has no record of Convoy and no effect. Logs of TVM's tuners cannot be "
                    "used; relay.build chooses kernels by measured cost without one",
                    stacklevel=2,
                )
        self._tokens: list[Token[Path | None]] = []

    def __enter__(self) -> History:
        self._tokens.append(_current.set(self._path or _current.get()))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._tokens.pop())

    @staticmethod
    def path() -> Path | None:
        """Return the log that counts here."""
        return _current.get()


def _has_records(path: Path) -> bool:
    with warnings.catch_warnings(), contextlib.suppress(CorruptRecords):
        warnings.simplefilter("ignore", RecordsWarning)
        return bool(RecordStore([path]).recorded())
    return False

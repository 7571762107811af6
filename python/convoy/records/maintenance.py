"""Maintain record files: merge, prune, export."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..errors import InvalidOption
from . import record_file
from .environment import LIBRARIES, same_kernels
from .record import Record
from .store import expand


@dataclass(frozen=True)
class Outcome:
    """Result of a merge or prune. ``skipped`` counts lines that were not records."""

    kept: int
    removed: int
    skipped: int
    backup: Path | None = None


def merge(sources: Sequence[str | Path], target: str | Path) -> Outcome:
    """Join record files (``target`` too, where it exists) into ``target``, latest of each key.

    ``target`` is replaced at once or not at all. Raises InvalidOption for a source that does
    not exist, CorruptRecords and CacheUnwritable as reading and writing do.
    """
    target = Path(target)
    for source in map(Path, sources):
        if not source.exists():
            raise InvalidOption(f"record file {source}, which does not exist", "an existing file")
    files = [path for path in expand(map(Path, sources)) if path != target]
    return _rewrite(target, files, lambda record: True)


def prune(
    path: str | Path,
    failures: bool = False,
    gpu: str | None = None,
    before: str | None = None,
    superseded_kernels: str | None = None,
) -> Outcome:
    """Remove superseded and unreadable lines from a file, and on request others.

    ``failures`` also removes failed measurements, ``gpu`` those of all other GPUs, ``before``
    (such as ``2026-01-31``) older ones, ``superseded_kernels`` those taken with other kernel
    sources than these (``environment.kernel_hashes()``). Where lines were unreadable the old file
    is kept as ``PATH.bak``.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidOption(f"record file {path}, which does not exist", "an existing file")

    def keep(record: Record) -> bool:
        kernels = record.environment.kernels
        return not (
            (failures and not record.measurement.ok)
            or (gpu is not None and record.environment.gpu != gpu)
            or (before is not None and record.time < before)
            or (superseded_kernels and not same_kernels(superseded_kernels, kernels))
        )

    return _rewrite(path, [], keep)


def _rewrite(target: Path, others: Sequence[Path], keep: Callable[[Record], bool]) -> Outcome:
    latest: dict[object, Record] = {}
    total = skipped = 0
    backup = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with record_file.locked(target):
            for path in [*others, target]:
                contents = record_file.read(path)
                skipped += len(contents.skipped)
                total += len(contents.records)
                for record in contents.records:
                    known = latest.get(record.key)
                    if known is None or record.time >= known.time:
                        latest[record.key] = record
                if path == target and contents.skipped:
                    backup = target.with_name(target.name + ".bak")
                    shutil.copyfile(target, backup)
            kept = sorted(filter(keep, latest.values()), key=_order)
            record_file.replace(target, kept)
    except OSError as err:
        raise record_file.unwritable(target, err) from err
    return Outcome(len(kept), total - len(kept), skipped, backup)


def _order(record: Record) -> tuple[str, str, str, str]:
    return record.environment.id, record.workload.key, record.candidate.key, record.time


WORKLOAD_COLUMNS = ["op", "n", "h", "w", "c", "k", "r", "s", "p", "q", "groups", "dtype"]
MEASUREMENT_COLUMNS = [
    "kernel_us",
    "kernel_spread_us",
    "cold_us",
    "enqueue_us",
    "e2e_us",
    "samples",
    "error",
    "failure",
]


def export_csv(records: Iterable[Record], stream: TextIO) -> int:
    """Write one row for each record with all that spreadsheets ask of it; returns the count."""
    environment = ["gpu", "sm_count", "driver", *LIBRARIES, "convoy"]
    columns = ["workload", *WORKLOAD_COLUMNS, "stride", "padding", "dilation", "epilogue"]
    columns += ["backend", "kernel", "workspace", "config", *MEASUREMENT_COLUMNS]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*columns, *environment, "time"])
    count = 0
    for record in records:
        w, c = record.workload, record.candidate
        measured = dataclasses.asdict(record.measurement)
        row = [w.key, *(getattr(w, name) for name in WORKLOAD_COLUMNS)]
        row += ["x".join(map(str, sizes)) for sizes in (w.stride, w.padding, w.dilation)]
        row += [w.epilogue.name, c.backend, c.kernel, c.workspace, c.config]
        row += ["" if measured[name] is None else measured[name] for name in MEASUREMENT_COLUMNS]
        row += [getattr(record.environment, name) for name in environment]
        writer.writerow([*row, record.time])
        count += 1
    return count

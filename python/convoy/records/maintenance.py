"""Maintain record files: merge, prune."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidOption
from ..paths import check_file
from . import record_file
from .environment import same_kernels
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
    check_file(path, "record file")

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

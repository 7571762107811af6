"""The database of measurements: append-only files with lookup by workload and environment."""

from __future__ import annotations

import functools
import itertools
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import paths as own_paths
from ..errors import InvalidOption
from ..ir.workload import Workload
from . import record_file
from .environment import MATCHES, Environment, Match
from .record import CandidateKey, HostSample, Record, candidate_key
from .record_file import SkippedLine, WaitingLine


@dataclass
class _Group:
    """Records of one workload: the latest of each candidate in each environment, and entries of
    files that are not parsed yet."""

    records: dict[tuple[str, CandidateKey], Record] = field(default_factory=dict)
    waiting: list[Record | WaitingLine] = field(default_factory=list)

    @property
    def entries(self) -> list[Record | WaitingLine]:
        """Both, in the order in which they were read."""
        return [*self.records.values(), *self.waiting]

    def add(self, record: Record) -> None:
        _, candidate, environment = record.key
        known = self.records.get((environment, candidate))
        if known is None or record.time >= known.time:
            self.records[environment, candidate] = record


class RecordsWarning(UserWarning):
    """Lines of a record file were skipped, or measurements of another environment are used."""


class RecordStore:
    """Records of one or more files.

    ``paths`` are files or folders (of ``*.jsonl`` and ``*.jsonl.gz``), read on first use, each
    workload's lines when it is first asked for.
    ``write_to`` receives what is appended, and is read too. Of several measurements of one
    thing the latest by time counts, and of equal times the one read last.

    Safe for use by many processes at once; what others append after a file was read is seen by a
    new store.
    """

    def __init__(
        self,
        paths: Sequence[str | Path] | str | Path = (),
        write_to: str | Path | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self._paths = [Path(path) for path in given]
        self._appender = None
        if write_to is not None:
            self._appender = record_file.Appender(Path(write_to))
            if Path(write_to) not in self._paths:
                self._paths.append(Path(write_to))
        self._index: dict[str, _Group] | None = None
        self._lock = threading.RLock()
        self._skipped: list[SkippedLine] = []
        self._reported = 0
        self._warned: set[str] = set()

    @classmethod
    def default(cls) -> RecordStore:
        """Return the shipped records and the user's own; new ones go to the user's."""
        return cls([own_paths.records_dir()], write_to=own_paths.user_records_file())

    @property
    def files(self) -> list[Path]:
        """The existing files, in the order in which they are read."""
        return list(expand(self._paths))

    @property
    def skipped(self) -> list[SkippedLine]:
        """Lines that could not be used."""
        self._all()
        return list(self._skipped)

    def append(self, record: Record) -> None:
        """Add one record to ``write_to``. Raises CacheUnwritable, or InvalidOption without one."""
        self.extend([record])

    def extend(self, records: Iterable[Record]) -> None:
        """Add several records under one lock; errors as :meth:`append`."""
        if self._appender is None:
            raise InvalidOption("a record store opened for reading", "write_to=FILE")
        records = list(records)
        self._appender.append(records)
        if self._index is not None:
            for record in records:
                group = self._index.setdefault(record.workload.key, _Group())
                self._settled(group).add(record)

    def lookup(
        self, workload: Workload, environment: Environment, mode: Match = "loose"
    ) -> list[Record]:
        """Return the latest record of every candidate of a workload, failures among them.

        For each backend the strict matches of ``environment`` where there are any, so that
        measurements of one backend come from one environment. Otherwise, unless ``mode`` is
        ``strict``, the loose matches that differ in the fewest fields, with a RecordsWarning
        that says (once) what differs.
        """
        if mode not in MATCHES:
            raise InvalidOption(f"mode {mode!r}", f"one of {', '.join(MATCHES)}")
        by_backend: dict[str, list[Record]] = {}
        for record in self.of(workload):
            by_backend.setdefault(record.candidate.backend, []).append(record)
        found: list[Record] = []
        same = functools.cache(environment.matches)  # records share few environments
        for records in by_backend.values():
            strict = [r for r in records if same(r.environment, "strict")]
            if not strict and mode == "loose":
                strict = self._nearest(records, environment)
            found += _latest_per_candidate(strict)
        return found

    def _nearest(self, records: list[Record], environment: Environment) -> list[Record]:
        loose = [r for r in records if environment.matches(r.environment, "loose")]
        if not loose:
            return []
        fewest = min(len(environment.differences(r.environment)) for r in loose)
        loose = [r for r in loose if len(environment.differences(r.environment)) == fewest]
        self._warn_once(
            f"using records of {environment.gpu} taken with "
            + ", ".join(environment.differences(loose[0].environment))
        )
        return loose

    def of(self, workload: Workload) -> list[Record]:
        """Return all records of a workload from all environments, in no particular order."""
        group = self._load().get(workload.key, _Group())
        records = list(self._settled(group).records.values())
        self._report()
        return records

    def workloads(self) -> list[Workload]:
        """Every workload that has a record, sorted."""
        return sorted(next(iter(group.records.values())).workload for group in self._all())

    def recorded(self) -> list[Workload]:
        """Every workload that files have lines of, without reading the rest of the lines; sorted.

        What is wrong with a line is found where its workload is asked for.
        """
        groups = self._load().values()
        return sorted(next(iter(group.entries)).workload for group in groups if group.entries)

    def samples(self, workload: Workload) -> list[HostSample]:
        """Return the times of a workload's records that have them all, without reading the rest of
        the lines."""
        group = self._load().get(workload.key, _Group())
        latest: dict[tuple[str, CandidateKey], tuple[str, HostSample | None]] = {}
        for entry in group.entries:
            glanced = _times_of(entry)
            if glanced is None:
                continue  # a bad line is reported where its workload is asked for
            key, time, sample = glanced
            if key not in latest or time >= latest[key][0]:
                latest[key] = time, sample
        return [sample for _, sample in latest.values() if sample is not None]

    def __iter__(self) -> Iterator[Record]:
        for group in self._all():
            yield from group.records.values()

    def __len__(self) -> int:
        return sum(len(group.records) for group in self._all())

    def _load(self) -> dict[str, _Group]:
        if self._index is None:
            index: dict[str, _Group] = {}
            skipped: list[SkippedLine] = []
            for path in self.files:
                for entry in record_file.skim(path):
                    if isinstance(entry, SkippedLine):
                        skipped.append(entry)
                    else:
                        index.setdefault(entry.workload.key, _Group()).waiting.append(entry)
            # Now, as a whole: other threads may be asking.
            self._index, self._skipped, self._reported = index, skipped, 0
        return self._index

    def _settled(self, group: _Group) -> _Group:
        """Return the group with nothing waiting."""
        if not group.waiting:
            return group
        with self._lock:
            for entry in group.waiting:
                record = entry.read() if isinstance(entry, WaitingLine) else entry
                if isinstance(record, SkippedLine):
                    self._skipped.append(record)
                else:
                    group.add(record)
            group.waiting = []
        return group

    def _all(self) -> list[_Group]:
        groups = [self._settled(group) for group in list(self._load().values())]
        self._report()
        return [group for group in groups if group.records]

    def _report(self) -> None:
        """Warn of skipped lines, once for each file where they are found together."""
        new, self._reported = self._skipped[self._reported :], len(self._skipped)
        new.sort(key=lambda skipped: (str(skipped.path), skipped.line))
        for _, lines in itertools.groupby(new, key=lambda skipped: skipped.path):
            first, *others = lines
            self._warn_once(
                f"skipped {len(others) + 1} line{'s' * bool(others)} of a record file, "
                f"the first: {first}"
            )

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, RecordsWarning, stacklevel=3)


def _times_of(
    entry: Record | WaitingLine,
) -> tuple[tuple[str, CandidateKey], str, HostSample | None] | None:
    """Environment and candidate, time and host times of an entry; None for a bad line."""
    if isinstance(entry, WaitingLine):
        if (glanced := entry.parser.glance_at_times(entry.text)) is not None:
            return glanced
        record = entry.read()
        if isinstance(record, SkippedLine):
            return None
        entry = record
    _, candidate, environment = entry.key
    return (environment, candidate), entry.time, entry.host_sample()


def expand(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the record files of files and folders, without absent ones."""
    for path in paths:
        if path.is_dir():
            yield from sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        elif path.exists():
            yield path


def _latest_per_candidate(records: list[Record]) -> list[Record]:
    latest: dict[CandidateKey, Record] = {}
    for record in sorted(records, key=lambda r: r.time):
        latest[candidate_key(record.candidate)] = record
    return list(latest.values())

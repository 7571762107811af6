"""Read and append to a record file, safe against crashes and other processes."""

from __future__ import annotations

import functools
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from ..atomic_file import replaced
from ..errors import CacheUnwritable, CorruptRecords, InvalidOption
from ..ir.workload import Workload
from .lines import BadLine, Parser
from .record import Record, header_line

LOCK_TIMEOUT_S = 60.0
#: Bytes of a line that is read, and of a whole file unpacked: 27,000 records are 23 MB.
MOST_LINE_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class SkippedLine:
    """A line that could not be used; ``line`` counts from 1."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class WaitingLine:
    """A line of which the workload alone was read so far."""

    path: Path
    line: int
    text: str
    workload: Workload
    parser: Parser

    def read(self) -> Record | SkippedLine:
        try:
            record = self.parser.parse(self.text)
        except BadLine as bad:
            return SkippedLine(self.path, self.line, str(bad))
        assert record is not None  # no header has a workload
        return record


Entry = Record | WaitingLine | SkippedLine


@dataclass
class Contents:
    """Content of a record file: its records in file order, and the skipped lines."""

    records: list[Record] = field(default_factory=list)
    skipped: list[SkippedLine] = field(default_factory=list)


def read(path: Path) -> Contents:
    """Read all records of a ``.jsonl`` or ``.jsonl.gz`` file; an absent file has none.

    Truncated, damaged and foreign lines are skipped and listed. Raises CorruptRecords when no
    line at all is a record or header and the file is neither empty nor one record cut short.
    """
    contents = Contents()
    for entry in _entries(path, wait=False):
        if isinstance(entry, Record):
            contents.records.append(entry)
        elif isinstance(entry, SkippedLine):
            contents.skipped.append(entry)
    return contents


def skim(path: Path) -> Sequence[Entry]:
    """Return the same, in file order, without reading the lines that convoy wrote: of many thousand
    records most runs need a few hundred.

    A compressed file, to which nothing is appended, is unpacked once for all stores of a process.
    """
    if path.suffix != ".gz":
        return _entries(path, wait=True)
    try:
        status = path.stat()
    except OSError:
        return _entries(path, wait=True)  # which says what is wrong
    return _unpacked(path, (status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=64)
def _unpacked(path: Path, _version: tuple[int, ...]) -> Sequence[Entry]:
    return _entries(path, wait=True)


def _entries(path: Path, wait: bool) -> list[Entry]:
    entries: list[Entry] = []
    parser, skipped, usable, last = Parser(), 0, 0, ""
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        last = line
        workload = parser.glance(line) if wait else None
        try:
            if workload is not None:
                entries.append(WaitingLine(path, number, line, workload, parser))
            elif (record := parser.parse(line)) is not None:
                entries.append(record)
            usable += 1
        except BadLine as bad:
            entries.append(SkippedLine(path, number, str(bad)))
            skipped += 1
    cut_short = skipped == 1 and last.startswith("{") and not last.endswith("\n")
    if skipped and not usable and not cut_short:
        first = next(entry for entry in entries if isinstance(entry, SkippedLine))
        raise CorruptRecords(
            f"{path}, whose first line starts {_first(path)!r} ({first.reason})",
            "a file of convoy records (JSON lines)",
            "Move it away, or name another file",
        )
    return entries


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            yield from _bounded(stream, path)
    except FileNotFoundError:
        return
    except (EOFError, zlib.error):
        yield "{"  # the compressed data end early: counted as one truncated line
    except gzip.BadGzipFile as err:
        raise CorruptRecords(f"{path} ({err})", "gzip-compressed records") from None
    except OSError as err:
        raise CorruptRecords(
            f"{path}, which cannot be read ({err.strerror})", "a readable record file"
        ) from None


def _bounded(stream: io.BufferedIOBase, path: Path) -> Iterator[str]:
    """Yield lines without holding more than the limit in memory; a longer line is truncated and
    thus not a record."""
    total = 0
    while line := stream.readline(MOST_LINE_BYTES):
        total += len(line)
        if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
            while rest := stream.readline(MOST_LINE_BYTES):
                total += len(rest)
                if rest.endswith(b"\n"):
                    break
            line = line[:80] + b"\n"
        if total > MOST_FILE_BYTES:
            raise CorruptRecords(
                f"{path} with more than {MOST_FILE_BYTES} bytes unpacked", "a file of records"
            )
        yield line.decode("utf-8", "replace")


def _first(path: Path) -> str:
    return next((line for line in _lines(path) if line.strip()), "")[:40]


class Appender:
    """Adds records to a file that other processes may be adding to at the same time.

    Every append writes whole lines at once, under a lock file beside it (``NAME.lock``). A line
    that a crash cut short is terminated first, so that it does not corrupt the next one. If a write
    fails, the file is truncated to its former length. Records survive the death of the process, but
    appends are not synced to the disk.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix == ".gz":
            raise InvalidOption(f"{path} to append to", "an uncompressed .jsonl file")
        self.path = path
        self._stated: set[str] = set()
        self._identity: tuple[int, int] | None = None
        self._size = 0

    def append(self, records: Iterable[Record]) -> None:
        """Raises CacheUnwritable when the folder or file cannot be written or the disk is full."""
        records = list(records)
        if not records:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path):
                self._write(records)
        except OSError as err:
            raise unwritable(self.path, err) from err

    def _write(self, records: list[Record]) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o644)
        try:
            status = os.fstat(descriptor)
            size, identity = status.st_size, (status.st_dev, status.st_ino)
            if identity != self._identity or size < self._size:
                self._stated.clear()  # another file by now: its headers are not known
            stated, lines = set(self._stated), []
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                lines.append("\n")
            for record in records:
                if record.environment.id not in stated:
                    stated.add(record.environment.id)
                    lines.append(header_line(record.environment))
                lines.append(record.to_line())
            data = "".join(lines).encode()
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError:
                os.ftruncate(descriptor, size)
                raise
            self._stated, self._identity, self._size = stated, identity, size + len(data)
        finally:
            os.close(descriptor)


def locked(path: Path) -> filelock.BaseFileLock:
    """Return the lock that every writer of ``path`` holds while it writes."""
    return filelock.FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S)


def replace(path: Path, records: Iterable[Record]) -> None:
    """Replace a file atomically; the caller holds the lock. Raises CacheUnwritable."""
    stated: set[str] = set()
    try:
        with replaced(path) as raw:
            os.fchmod(raw.fileno(), 0o644)
            # mtime 0: the same records give the same bytes
            stream = gzip.GzipFile("", "wb", 9, raw, mtime=0) if path.suffix == ".gz" else raw
            for record in records:
                if record.environment.id not in stated:
                    stated.add(record.environment.id)
                    stream.write(header_line(record.environment).encode())
                stream.write(record.to_line().encode())
            if stream is not raw:
                stream.close()
            raw.flush()
            os.fsync(raw.fileno())
    except OSError as err:
        raise unwritable(path, err) from err


def unwritable(path: Path, err: OSError) -> CacheUnwritable:
    """Return the error to raise when writing ``path`` failed."""
    if isinstance(err, filelock.Timeout):
        reason = f"another process has held {path}.lock for {LOCK_TIMEOUT_S:.0f} s"
    else:
        reason = err.strerror or str(err)
    return CacheUnwritable(
        f"{path}, which cannot be written ({reason})",
        "a writable folder with free space",
        "Free space, change permissions, or name another file (CONVOY_DATA_DIR moves the own one)",
    )

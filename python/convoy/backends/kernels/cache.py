"""The folder of compiled kernels, addressed by what went into them.

``<key>.json`` names the library by its own hash, ``<hash>.so`` holds it. Both are written to a
temporary name and renamed, the library first, so that a reader sees a whole entry or none. Several
processes that want the same kernel wait for the first one to build it, where the file system knows
locks; elsewhere each builds it, which does no harm. A library that does not match its hash
(truncated by a crash, damaged) counts as absent and is built again, so nothing waits for the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from ... import paths
from ...atomic_file import replaced
from ...errors import CacheUntrusted, CacheUnwritable, InvalidOption
from ...ir import fields as checks

_MOST_ENTRY_BYTES = 1 << 20
_MOST_LIBRARY_BYTES = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _sha256(value: object) -> str:
    if isinstance(value, str) and _SHA256.fullmatch(value):
        return value
    raise checks.Mismatch("a SHA-256 in hexadecimal", value)


@dataclass(frozen=True)
class _Record:
    """The content of a JSON file: the library's hash, and how it was made."""

    sha256: str
    about: dict[str, object]


_RECORD: dict[str, checks.Check] = {
    "sha256": _sha256,
    "about": checks.mapping(lambda value: value, 100),
}


@dataclass(frozen=True)
class Entry:
    """A compiled kernel library, the SHA-256 of its bytes, how it was made, and its file in the
    cache (None for one that came with the package)."""

    library: bytes
    sha256: str
    about: Mapping[str, object]
    path: Path | None = None


def kernels_dir() -> Path:
    """``kernels`` in the user's cache folder (see :func:`convoy.paths.cache_dir`)."""
    return paths.cache_dir() / "kernels"


class KernelCache:
    """Entries under one folder (:func:`kernels_dir`), which is created by the first write."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else kernels_dir()

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key; None if there is none or its files are damaged.

        Raises CacheUntrusted if others may write to the folder: a library is code.
        """
        self._check_owner()
        try:
            text = checks.read_bytes(self.folder / f"{key}.json", _MOST_ENTRY_BYTES)
            data = checks.parse_json(text, key, InvalidOption)
            record = checks.made(_Record, data, _RECORD, key, InvalidOption, _RECORD)
            path = self.folder / f"{record.sha256}.so"
            library = checks.read_bytes(path, _MOST_LIBRARY_BYTES)
        except (OSError, InvalidOption):
            return None
        if hashlib.sha256(library).hexdigest() != record.sha256:
            return None
        return Entry(library, record.sha256, record.about, path)

    def _check_owner(self) -> None:
        try:
            status = self.folder.stat()
        except OSError:
            return
        others = status.st_uid not in (os.geteuid(), 0)
        if others or status.st_mode & stat.S_IWOTH:
            whose = f"of user {status.st_uid}" if others else "that everyone may write to"
            raise CacheUntrusted(
                f"cache folder {self.folder} {whose}",
                "a folder of your own: what lies in it is run",
                f"Set CONVOY_CACHE_DIR to another folder, or run `chmod o-w {self.folder}`",
            )

    def __contains__(self, key: str) -> bool:
        """Return whether there is an entry; :meth:`get` checks that it is complete."""
        return (self.folder / f"{key}.json").is_file()

    def put(self, key: str, library: bytes, about: Mapping[str, object]) -> Entry:
        """Store a library. Raises CacheUnwritable."""
        sha256 = hashlib.sha256(library).hexdigest()
        path = self.folder / f"{sha256}.so"
        record = json.dumps({"sha256": sha256, "about": about}, indent=1, sort_keys=True)
        self._write(path, library)
        self._write(self.folder / f"{key}.json", record.encode())
        return Entry(library, sha256, about, path)

    def file(self, entry: Entry) -> Path:
        """A file of an entry's library, for those that load it from one. Raises CacheUnwritable."""
        path = self.folder / f"{entry.sha256}.so"
        return path if path.is_file() else self._write(path, entry.library)

    @contextmanager
    def being_built(self, key: str, seconds: float) -> Iterator[None]:
        """Hold the lock of an entry while it is built; go on without after ``seconds``."""
        lock = filelock.FileLock(self.folder / f".lock-{key}", timeout=seconds)
        try:
            lock.acquire()
        except (filelock.Timeout, OSError, NotImplementedError):
            yield
            return
        try:
            yield
        finally:
            # A process that waits has the removed file open; later ones create a new one.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def check_writable(self) -> None:
        """Raises CacheUnwritable before minutes are spent on compiling."""
        probe = self._write(self.folder / f".probe-{os.getpid()}", b"")
        probe.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes) -> Path:
        try:
            with replaced(path) as file:
                file.write(content)
        except OSError as error:
            raise CacheUnwritable(
                f"{error.strerror or error} while writing {path}",
                "a cache folder that can be written to",
                "Free space or set CONVOY_CACHE_DIR to another folder",
            ) from error
        return path

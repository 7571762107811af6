"""The folder of compiled modules: one file for each, named by the hash of its build's inputs.

Entries are those of :class:`~convoy.backends.kernels.cache.KernelCache`: written to a temporary
name and renamed, treated as absent if damaged, rejected in a folder that others may write to. In
addition to the key of its build, an entry depends on the user's own records of the network's
workloads, which the build itself may extend: the entry stores a digest of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from .. import paths
from ..backends.kernels.cache import KernelCache
from ..errors import ConvoyError, CorruptArtefact, InvalidOption, LibraryMissing
from ..ir.workload import Workload
from ..records.lines import glance_at_workload
from ..records.record import workload_text
from ..runtime.compiled import CompiledModule, load_content

_log = logging.getLogger(__name__)
#: Bytes of all entries; the least recently used are deleted first. 0 turns the cache off.
MOST_BYTES = 4 << 30
VARIABLE = "CONVOY_MODULE_CACHE_BYTES"
#: Seconds after which files of killed builds are removed.
_ABANDONED_S = 3600.0


class ModuleCache:
    """Compiled modules under one folder, by default ``modules`` in the user's cache folder.

    Args:
        most_bytes: Bound of the folder's size; default: :data:`MOST_BYTES`, or the environment
            variable CONVOY_MODULE_CACHE_BYTES.

    Raises:
        InvalidOption: That variable is no number.
    """

    def __init__(self, folder: Path | None = None, most_bytes: int | None = None) -> None:
        self._files = KernelCache(folder or paths.cache_dir() / "modules")
        self._most = most_bytes if most_bytes is not None else _most_bytes()

    @property
    def folder(self) -> Path:
        return self._files.folder

    def get(self, key: str, records: Path) -> CompiledModule | None:
        """The module of a key; None if there is none, where it is damaged, or where ``records``
        have other measurements of its workloads by now.

        Raises CacheUntrusted where others may write into the folder: a module is code.
        """
        if not self._most or (entry := self._files.get(key)) is None:
            return None
        workloads, digest = entry.about.get("workloads"), entry.about.get("records")
        if workloads is not None and not isinstance(workloads, list):
            return None
        if digest != records_digest(records, workloads):
            return None
        try:
            module = load_content(entry.library, str(entry.path))
        except (CorruptArtefact, LibraryMissing) as error:  # for example, of another TVM's runtime
            _log.warning("%s", error)
            return None
        with contextlib.suppress(OSError):
            os.utime(self.folder / f"{key}.json")  # used just now
        return module

    def put(
        self,
        key: str,
        module: CompiledModule,
        records: Path,
        workloads: Collection[Workload] | None,
    ) -> None:
        """Store a module that was just built; a failure is logged, since only time is lost.

        Args:
            workloads: Those whose records have a part in it; None for all records.
        """
        if not self._most:
            return
        try:
            texts = None if workloads is None else sorted({workload_text(w) for w in workloads})
            content = module.linked()
            if len(content) <= self._most:
                about = {"workloads": texts, "records": records_digest(records, texts)}
                self._files.put(key, content, about)
            self._evict()
        except (ConvoyError, OSError, RuntimeError) as error:
            _log.warning("the module is not kept for the next build: %s", error)

    def _evict(self) -> None:
        """Remove the least recently used entries until the rest fits, and what killed builds left.

        An entry that another process removes at the same time, or reads, does no harm: a reader
        that finds half of one builds anew.
        """
        entries = sorted(self._entries(), reverse=True)
        total, kept = 0, set()
        for _, path, library in entries:
            size = _size(path) + (0 if library in kept else _size(self.folder / library))
            total += size
            if total <= self._most:
                kept.add(library)
            else:
                path.unlink(missing_ok=True)
        oldest = time.time() - _ABANDONED_S
        for path in self.folder.iterdir():
            abandoned = _modified(path) < oldest
            if path.suffix == ".so" and path.name not in kept:
                removed = abandoned or any(library == path.name for _, _, library in entries)
            else:
                removed = abandoned and path.name.startswith(".")
            if removed:
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[float, Path, str]]:
        """Return the time of last use, file and library name of each entry."""
        for path in self.folder.glob("*.json"):
            try:
                sha256 = json.loads(path.read_bytes())["sha256"]
                yield _modified(path), path, f"{sha256}.so"
            except (OSError, ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)


def _most_bytes() -> int:
    text = os.environ.get(VARIABLE, str(MOST_BYTES))
    if not text.isdecimal():
        raise InvalidOption(f"{VARIABLE}={text}", "a number of bytes, 0 for no cache")
    return int(text)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def records_digest(path: Path, workloads: Collection[str] | None) -> str:
    """Hash the lines of a record file that concern these workloads (None: all lines).

    Lines that Convoy did not write count for every workload. An absent file is treated as an empty
    one.
    """
    wanted = None if workloads is None else {*workloads, None}
    found = hashlib.sha256()
    with (
        contextlib.suppress(OSError),
        open(path, encoding="utf-8", errors="replace") as lines,
    ):
        for line in lines:
            if wanted is None or glance_at_workload(line) in wanted:
                found.update(line.encode())
    return found.hexdigest()

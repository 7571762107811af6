"""Kernel libraries that come compiled with the package, one archive for each architecture.

``codegen/compiled/NAME.zip`` holds ``manifest.json`` and blocks of ``TOGETHER`` libraries, one
behind the other: libraries are alike, and so take half as much as when each is compressed alone. A
kernel is found by :func:`code_key`: its source, the project's headers, CUTLASS's version and the
flags, but not the compiler that happens to be installed. So an entry whose code has changed since
is not found, and the kernel is compiled like any other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import paths
from ...errors import CorruptArtefact, InvalidOption
from ...ir import fields as checks
from .cache import Entry
from .kernel import Kernel
from .sources import code_key

MANIFEST = "manifest.json"
FORMAT = 2
#: Libraries of a block, which is unpacked whole, in 10 ms, or up to 100 with PTX.
TOGETHER = 16


@dataclass(frozen=True, eq=False)
class Archive:
    """An archive: its path, the compiler's version, and its entries by code key."""

    path: Path
    toolkit: str
    entries: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Read the manifest. Raises CorruptArtefact for anything but an archive of this format."""
        try:
            with zipfile.ZipFile(path) as archive:
                data = checks.parse_json(archive.read(MANIFEST), MANIFEST, CorruptArtefact)
            if not isinstance(data, dict) or data["format"] != FORMAT:
                raise ValueError(f"not format {FORMAT}")
            return cls(path, str(data["toolkit"]), dict(data["kernels"]))
        except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise CorruptArtefact(
                f"{path}, no archive of compiled kernels ({error})",
                f"what tuning/ship_kernels.py writes, format {FORMAT}",
            ) from None

    def read(self, key: str) -> Entry | None:
        """The library of a key; None if there is none or its bytes are damaged."""
        about = self.entries.get(key)
        if about is None:
            return None
        try:
            begin, end = about["place"]
            library = _block(self.path, about["block"])[begin:end]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None
        if hashlib.sha256(library).hexdigest() != about["sha256"]:
            return None
        return Entry(library, about["sha256"], about)


@functools.lru_cache(maxsize=64)
def _block(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


@functools.cache
def archives() -> tuple[Archive, ...]:
    """All archives of the package."""
    folder = paths.codegen_dir() / "compiled"
    return tuple(Archive.open(path) for path in sorted(folder.glob("*.zip")))


def find(kernel: Kernel) -> Entry | None:
    """The shipped library of a kernel, or None."""
    key = code_key(kernel)
    return next((e for archive in archives() if (e := archive.read(key)) is not None), None)


def has(kernel: Kernel) -> bool:
    """Return whether :func:`find` would find the kernel; reads no library."""
    key = code_key(kernel)
    return any(key in archive.entries for archive in archives())


def kernels(archive: Archive) -> list[Kernel]:
    """The kernels of an archive as today's sources have them; none for an entry that no family can
    read any more."""
    from .. import registry

    found = []
    for entry in archive.entries.values():
        with contextlib.suppress(InvalidOption, KeyError, AttributeError):
            found.append(registry.get(entry["backend"]).family.kernel_from_json(entry["kernel"]))  # type: ignore[attr-defined]
    return found


def stale(archive: Archive, kernels: Iterable[Kernel]) -> list[str]:
    """Names of entries that no kernel of today's sources has."""
    current = {code_key(kernel) for kernel in kernels}
    return sorted(about["name"] for key, about in archive.entries.items() if key not in current)


def pack(
    path: Path, toolkit: str, libraries: Mapping[Kernel, Entry], backend_of: Mapping[Kernel, str]
) -> None:
    """Write an archive; equal libraries give equal bytes."""
    # By name: libraries that are most alike are in one block.
    kernels = sorted(libraries, key=lambda kernel: (backend_of[kernel], kernel.name))
    blocks: dict[str, bytes] = {}
    entries = {}
    for number, kernel in enumerate(kernels):
        block, entry = f"{number // TOGETHER}.bin", libraries[kernel]
        begin = len(blocks.setdefault(block, b""))
        blocks[block] += entry.library
        entries[code_key(kernel)] = {
            "backend": backend_of[kernel],
            "name": kernel.name,
            "kernel": kernel.to_json(),
            "sha256": entry.sha256,
            "block": block,
            "place": [begin, len(blocks[block])],
        }
    manifest = {"format": FORMAT, "toolkit": toolkit, "kernels": entries}
    files = {MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode(), **blocks}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_LZMA)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())

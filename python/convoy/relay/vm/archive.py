"""Files of executables: a sealed zip file of the description, the library and the Relay source.

The library is what was compiled ahead of time, the source what is compiled when it runs. Either may
be absent.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy.errors import CorruptArtefact
from convoy.ir.fields import parse_json
from convoy.ir.sealed_file import read_sealed, sealed, write_sealed

_ABOUT, _LIBRARY, _SOURCE = "about.json", "library.so", "module.json"
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Archive:
    """The content of a file.

    Attributes:
        about: The description.
        library: The shared object; empty for none.
        source: The Relay module as `save_json` writes it; empty for none.
    """

    about: Mapping[str, Any]
    library: bytes = b""
    source: str = ""


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Check whether a file begins as an archive does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_ZIP)) == _ZIP
    except OSError:
        return False


def library_bytes(export: Callable[[str], Any]) -> bytes:
    """Return the shared object that a function writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _LIBRARY)
        export(str(path))
        return path.read_bytes()


def write(path: str | os.PathLike[str], archive: Archive) -> None:
    """Write a file, whole or not at all.

    Raises:
        CacheUnwritable: The folder cannot be written.
    """

    def members(file_name: str) -> None:
        with zipfile.ZipFile(file_name, "w") as file:
            file.writestr(_ABOUT, json.dumps(archive.about))
            if archive.library:
                file.writestr(_LIBRARY, archive.library)
            if archive.source:
                file.writestr(_SOURCE, archive.source)

    write_sealed(path, lambda folder: sealed(members, folder))


def read(path: str | os.PathLike[str]) -> Archive:
    """Read a file.

    Raises:
        CorruptArtefact: Not such a file, or a damaged one.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(io.BytesIO(read_sealed(path))) as file:
            if any(info.compress_type != zipfile.ZIP_STORED for info in file.infolist()):
                raise ValueError("compressed, which export_library does not do")
            content = {member: file.read(member) for member in file.namelist()}
        source = content.get(_SOURCE, b"").decode()
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError) as error:
        raise CorruptArtefact(f"{name}, which is damaged ({error})", "an executable") from None
    about = parse_json(content.get(_ABOUT, b""), f"the description in {name}", CorruptArtefact)
    if not isinstance(about, dict):
        raise CorruptArtefact(f"{name} without a description", "what export_library wrote")
    return Archive(about, content.get(_LIBRARY, b""), source)

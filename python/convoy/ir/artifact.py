"""Files that compiled modules are saved in: a shared object with a seal at its end.

The seal (after the ELF image, where loaders do not look) holds the length and SHA-256 of what
comes before it, so that a truncated or damaged file is refused before the system's loader maps
it: a truncated shared object does not fail in the loader, it kills the process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import CacheUnwritable, CorruptArtefact

_MAGIC = b"CONVOYSO"
_SEAL = struct.Struct("<Q32s8s")
META_FORMAT = 1


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Meta:
    """What a compiled module says of itself; travels inside the artefact as JSON.

    ``target`` is "cuda" or "llvm", ``precision`` the dtype policy it was built with, ``plan``
    the JSON of the placement (empty for none), ``versions`` the libraries it was built against,
    ``schedule`` the JSON of the schedule (empty for none). ``cuda_graph`` says that sessions are
    to capture the whole function and replay it. ``rescheduled`` are kernels of TVM on which the
    schedule of first choice failed, a line each with what was tried.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    target: str
    precision: str
    plan: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)
    cuda_graph: bool = False
    rescheduled: tuple[str, ...] = ()
    format: int = META_FORMAT

    def dumps(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Meta:
        """Inverse of :meth:`dumps`; raises CorruptArtefact where fields are missing."""
        try:
            data = json.loads(text)
            if data["format"] != META_FORMAT:
                raise CorruptArtefact(
                    f"a module of format {data['format']}",
                    f"format {META_FORMAT}",
                    "Build it again with this version of convoy.",
                )
            for side in ("inputs", "outputs"):
                data[side] = tuple(
                    TensorInfo(t["name"], tuple(t["shape"]), t["dtype"]) for t in data[side]
                )
            data["rescheduled"] = tuple(data.get("rescheduled", ()))
            return cls(**data)
        except (json.JSONDecodeError, KeyError, TypeError) as err:
            raise CorruptArtefact(
                f"a module whose description cannot be read ({err!r})",
                "the description that build wrote",
            ) from None


def write_sealed(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Let ``write`` make a shared object at a temporary path, seal it and move it to ``path``.

    The file appears whole or not at all. Raises CacheUnwritable where the folder cannot be
    written.
    """
    target = Path(path)
    try:
        with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=".convoy-") as folder:
            made = Path(folder) / "module.so"
            write(str(made))
            body = made.read_bytes()
            seal = _SEAL.pack(len(body), hashlib.sha256(body).digest(), _MAGIC)
            with made.open("ab") as file:
                file.write(seal)
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, target)
    except OSError as err:
        raise CacheUnwritable(
            f"{target}, which cannot be written ({err})", "a path in a writable folder"
        ) from None


def check_seal(path: str | os.PathLike[str]) -> None:
    """Raise CorruptArtefact unless the file is what :func:`write_sealed` wrote."""
    remedy = "Export it again."
    try:
        data = Path(path).read_bytes()
    except OSError as err:
        raise CorruptArtefact(
            f"{path}, which cannot be read ({err})", "a compiled module"
        ) from None
    expected = "a module written by export_library"
    if len(data) < _SEAL.size:
        raise CorruptArtefact(f"{path} of {len(data)} bytes", expected, remedy)
    length, digest, magic = _SEAL.unpack(data[-_SEAL.size :])
    if magic != _MAGIC:
        raise CorruptArtefact(f"{path} without a seal at its end (truncated?)", expected, remedy)
    body = memoryview(data)[: -_SEAL.size]
    if length != len(body) or hashlib.sha256(body).digest() != digest:
        raise CorruptArtefact(f"{path} whose bytes differ from what was sealed", expected, remedy)

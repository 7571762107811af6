"""Files that compiled modules are saved in: a shared object with a seal at its end.

The seal (after the ELF image, where loaders do not look) holds the length and SHA-256 of what
comes before it, so that a truncated or damaged file is refused before the system's loader maps
it: a truncated shared object does not fail in the loader, it kills the process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CacheUnwritable, CorruptArtefact, InvalidOption
from . import fields as checks

_MAGIC = b"CONVOYSO"
_SEAL = struct.Struct("<Q32s8s")
META_FORMAT = 1
#: Bytes that the folder for temporary files must have room for; more where weights are large.
_LEAST_SPACE = 16 << 20


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Meta:
    """Description of a compiled module, stored inside the artefact as JSON.

    ``target`` is "cuda" or "llvm", ``precision`` the dtype policy it was built with, ``plan``
    the JSON of the placement (empty for none), ``versions`` the libraries it was built against,
    ``schedule`` the JSON of the schedule (empty for none). ``cuda_graph`` says that sessions are
    to capture the whole function and replay it. ``rescheduled`` are kernels of TVM on which the
    schedule of first choice failed, a line each with what was tried. ``function`` is what runs the
    network; ``others`` describe functions of the same module for other batch sizes. ``layers`` are
    the model's names of its convolutions and matmuls in program order, empty if one has none.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    target: str
    precision: str
    plan: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schedule: dict[str, object] = field(default_factory=dict)
    cuda_graph: bool = False
    rescheduled: tuple[str, ...] = ()
    function: str = "main"
    others: tuple[Meta, ...] = ()
    layers: tuple[str, ...] = ()
    format: int = META_FORMAT

    @property
    def arch(self) -> int | None:
        """Compute capability times ten of the GPU that the plan is for; None without a plan."""
        device = self.plan.get("device")
        return device.get("arch") if isinstance(device, dict) else None

    def dumps(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Meta:
        """Inverse of :meth:`dumps`; raises CorruptArtefact where fields are missing."""
        return cls.from_json(checks.parse_json(text, "a module's description", CorruptArtefact))

    @classmethod
    def from_json(cls, data: object) -> Meta:
        """Return a description from its fields; raises as :meth:`loads`."""
        if isinstance(data, dict) and data.get("format") != META_FORMAT:
            raise CorruptArtefact(
                f"a module of format {str(data.get('format'))[:60]}",
                f"format {META_FORMAT}",
                "Build it again with this version of convoy.",
            )
        required = ("format", "inputs", "outputs", "target", "precision")
        return checks.made(cls, data, _META, "description", CorruptArtefact, required)


def _tensor(data: object) -> TensorInfo:
    return checks.made(TensorInfo, data, _TENSOR, "tensor", CorruptArtefact, _TENSOR)


def _json(value: object) -> dict[str, object]:
    return checks.mapping(lambda inner: inner)(value)  # Plan and Schedule check what is inside


_TENSOR: dict[str, checks.Check] = {
    "name": checks.text(10000),
    "shape": checks.tuple_of(checks.integer(0, 2**63 - 1), most=64),
    "dtype": checks.text(),
}
_META: dict[str, checks.Check] = {
    "format": checks.integer(),
    "inputs": checks.tuple_of(_tensor),
    "outputs": checks.tuple_of(_tensor),
    "target": checks.one_of(("cuda", "llvm")),
    "precision": checks.text(),
    "plan": _json,
    "versions": checks.mapping(checks.text(1000), 100),
    "schedule": _json,
    "cuda_graph": checks.boolean,
    "rescheduled": checks.tuple_of(checks.text(1 << 16)),
    "function": checks.text(),
    "others": checks.tuple_of(Meta.from_json, most=1000),
    "layers": checks.tuple_of(checks.text(1 << 16)),
}


def sealed(write: Callable[[str], object], folder: Path | None = None) -> bytes:
    """Let ``write`` make a shared object at a temporary path below ``folder`` (default: the
    system's for temporary files), and return its content with a seal.

    Raises OSError where little can be written there, before LLVM fails to: it ends the process.
    """
    with tempfile.TemporaryFile(dir=folder) as reserved:
        os.posix_fallocate(reserved.fileno(), 0, _LEAST_SPACE)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".convoy-") as below:
        made = Path(below) / "module.so"
        write(str(made))
        body = made.read_bytes()
    return body + _SEAL.pack(len(body), hashlib.sha256(body).digest(), _MAGIC)


def write_sealed(path: str | os.PathLike[str], content: Callable[[Path], bytes]) -> None:
    """Write a sealed file.

    ``content`` gets a folder for temporary files and returns the result of :func:`sealed`. The file
    is written atomically. Raises CacheUnwritable if the folder cannot be written.
    """
    target = Path(path)
    try:
        with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=".convoy-") as folder:
            made = Path(folder) / "module.so"
            data = content(Path(folder))
            with made.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, target)
    except OSError as err:
        raise CacheUnwritable(
            f"{target}, which cannot be written ({err})", "a path in a writable folder"
        ) from None


def read_sealed(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file that :func:`write_sealed` wrote, checked as a whole.

    The seal proves that the file is complete and undamaged, not who wrote it.

    Raises:
        InvalidOption: A missing file.
        CorruptArtefact: Any other file.
    """
    remedy = "Export it again."
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidOption(f"{path}, which does not exist", "a compiled module") from None
    except OSError as err:  # a folder, or no permission to read: nothing is wrong with a module
        raise InvalidOption(f"{path}, which cannot be read ({err})", "a compiled module") from None
    expected = "a module written by export_library"
    if len(data) < _SEAL.size:
        raise CorruptArtefact(f"{path} of {len(data)} bytes", expected, remedy)
    length, digest, magic = _SEAL.unpack(data[-_SEAL.size :])
    if magic != _MAGIC:
        raise CorruptArtefact(f"{path} without a seal at its end (truncated?)", expected, remedy)
    body = memoryview(data)[: -_SEAL.size]
    if length != len(body) or hashlib.sha256(body).digest() != digest:
        raise CorruptArtefact(f"{path} whose bytes differ from what was sealed", expected, remedy)
    return data


@contextlib.contextmanager
def private_copy(content: bytes) -> Iterator[str]:
    """Yield a path, ending in ``.so``, to a copy in memory that no other process can write to.

    The system's loader knows a library by its path and file: what was loaded from a path before
    would be returned for whatever lies there now, and a file that is written over changes the code
    that runs. A copy is a new file each time, and lives as long as it is mapped.
    """
    descriptor = os.memfd_create("convoy-module", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        with tempfile.TemporaryDirectory(prefix="convoy-load-") as folder:
            link = Path(folder) / "module.so"
            link.symlink_to(f"/proc/self/fd/{descriptor}")
            yield str(link)
    finally:
        os.close(descriptor)

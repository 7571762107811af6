"""Files that compiled modules are saved in: a shared object with a seal at its end.

The seal (after the ELF image, where loaders do not look) holds the length and SHA-256 of what
comes before it, so that a truncated or damaged file is refused before the system's loader maps
it: a truncated shared object does not fail in the loader, it kills the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import CacheUnwritable, CorruptArtefact, InvalidOption
from ..paths import check_writable

_MAGIC = b"CONVOYSO"
_SEAL = struct.Struct("<Q32s8s")
#: Bytes that the folder for temporary files must have room for; more where weights are large.
_LEAST_SPACE = 16 << 20


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
        return seal([made.read_bytes()])


def seal(parts: Sequence[bytes | memoryview]) -> bytes:
    """Join the parts of a shared object, with a seal at the end."""
    found, length = hashlib.sha256(), 0
    for part in parts:
        found.update(part)
        length += len(part)
    return b"".join([*parts, _SEAL.pack(length, found.digest(), _MAGIC)])


def write_sealed(path: str | os.PathLike[str], content: Callable[[Path], bytes]) -> None:
    """Write a sealed file.

    ``content`` gets a folder for temporary files and returns the result of :func:`sealed`. The file
    is written atomically. Raises CacheUnwritable if the folder cannot be written.
    """
    target = Path(path)
    check_writable(target)
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
        problem = f"{target}, which cannot be written ({err.strerror or err})"
        raise CacheUnwritable(problem, "a path in a writable folder") from None


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
        raise InvalidOption(
            f"{path}, which cannot be read ({err.strerror})", "a compiled module"
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

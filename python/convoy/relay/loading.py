"""Loading what `export_library` wrote: networks and executables."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile

import convoy
from convoy.errors import CorruptArtefact, InvalidOption
from convoy.graph_executor import GraphExecutorFactoryModule
from convoy.relay.vm import archive
from convoy.relay.vm.executable import Executable
from convoy.relay.vm.loading import load as load_executable


def load_module(path: str | os.PathLike[str]) -> GraphExecutorFactoryModule | Executable:
    """Load what `export_library` wrote, also as a `.tar`.

    Returns:
        A built network for `GraphModule`, or an executable for `VirtualMachine`.

    Raises:
        InvalidOption: A missing file.
        CorruptArtefact: Not such a file, or a damaged one.
    """
    if archive.is_archive(path):
        return load_executable(path)
    if os.fspath(path).endswith(".tar") and os.path.isfile(path):
        with tempfile.TemporaryDirectory() as folder:
            compiled = convoy.load(_unpacked(path, folder))
    else:
        compiled = convoy.load(path)
    return GraphExecutorFactoryModule(compiled, None, compiled.meta.target, "default")


def _unpacked(path: str | os.PathLike[str], folder: str) -> str:
    """Extract the library of a tar file to a folder; return its path."""
    if not os.path.isfile(path):
        raise InvalidOption(f"{os.fspath(path)}, which does not exist", "a compiled module")
    try:
        with tarfile.open(path) as archive:
            names = [m for m in archive.getmembers() if m.isfile() and m.name.endswith(".so")]
            stream = archive.extractfile(names[0]) if len(names) == 1 else None
            if stream is None:
                raise CorruptArtefact(f"{os.fspath(path)}", "a tar file with one library (.so)")
            library = os.path.join(folder, "library.so")
            with open(library, "wb") as out:
                shutil.copyfileobj(stream, out)
    except (tarfile.TarError, EOFError) as err:
        raise CorruptArtefact(f"{os.fspath(path)}, which is no tar file: {err}") from err
    return library

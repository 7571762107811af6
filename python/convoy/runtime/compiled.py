"""A compiled network: in memory, exported to a file, and loaded from one."""

from __future__ import annotations

import dataclasses
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CorruptArtefact, InvalidOption, LibraryMissing
from ..ir.artifact import Meta
from ..ir.plan import Plan
from ..ir.schedule import Schedule
from ..ir.sealed_file import private_copy, read_sealed, seal, sealed, write_sealed
from .quiet import without_scope_warnings
from .session import Session
from .shared_object import packed, shared_object

if TYPE_CHECKING:
    import numpy as np
    import tvm

#: A hash of the whole file, which the linker takes longer for than for all else.
_NO_BUILD_ID = "-Wl,--build-id=none"
_making_sessions = threading.Lock()


@dataclass
class CompiledModule:
    """A compiled network, in memory or loaded from a file.

    Attributes:
        module: The TVM executable, or the loaded module.
        meta: Its description: inputs, outputs, target, plan and schedule.
        content: The exported file, for a module that is linked already.
    """

    module: tvm.runtime.Executable | tvm.runtime.Module
    meta: Meta
    content: bytes = field(default=b"", repr=False, compare=False)

    @property
    def plan(self) -> Plan | None:
        """The plan; None for a module without library kernels."""
        return Plan.from_json(self.meta.plan) if self.meta.plan else None

    @property
    def schedule(self) -> Schedule | None:
        """Streams, launch order and storage; None for a module that was not scheduled."""
        return Schedule.from_json(self.meta.schedule) if self.meta.schedule else None

    def export_library(self, path: str | os.PathLike[str], **options: object) -> None:
        """Write a self-contained shared object; ``options`` are passed to TVM's export_library.

        A linker is needed only with options, and for modules with code for the CPU. Options have no
        effect on a module from the build cache, which is linked already; a warning says so. Raises
        CacheUnwritable if the folder cannot be written.
        """
        write_sealed(path, lambda folder: self.linked(folder, **options))

    def linked(self, folder: Path | None = None, **options: object) -> bytes:
        """Return the content of the file that :meth:`export_library` writes; ``folder`` is for
        temporary files."""
        if self.content:
            if options:
                warnings.warn(
                    f"{', '.join(options)} without effect: the module of an earlier build is linked"
                    " already. Build with cache=False to link it anew.",
                    stacklevel=3,
                )
            return self.content
        if not hasattr(self.module, "export_library"):
            raise InvalidOption("export of a module that was loaded from a file", "a built module")
        with without_scope_warnings():
            if (data := None if options else self._data()) is not None:
                return seal(shared_object(data))
            return sealed(lambda file: self._export(file, **options), folder)

    def _data(self) -> np.ndarray | None:
        """Serialize the module; None where part of it has to be linked."""
        return packed(self.module.mod) if self.meta.target == "cuda" else None

    def _export(self, file: str, **options: object) -> None:
        """Have TVM link a file, with its temporary files beside it."""
        given: dict[str, object] = {"workspace_dir": os.path.dirname(file)}
        if not options.keys() & {"fcompile", "cc"}:
            given["options"] = [_NO_BUILD_ID]
        self.module.export_library(file, **given | options)

    def session(self, device: tvm.runtime.Device | None = None) -> Session:
        """Create a session on a TVM device (default: the first one of the module's target)."""
        return self.sessions(device, (self.meta,))[0]

    def sessions(
        self, device: tvm.runtime.Device | None = None, metas: Sequence[Meta] | None = None
    ) -> list[Session]:
        """Create a session for each batch size of the module, ascending. They share one set of
        weights, and two of them must not run at the same time."""
        import tvm

        kind = "cuda" if self.meta.target == "cuda" else "cpu"
        device = tvm.device(kind, 0) if device is None else device
        if not isinstance(device, tvm.runtime.Device):
            raise InvalidOption(f"device {device!r}", f"a device of TVM, such as tvm.{kind}(0)")
        if device.dlpack_device_type() != tvm.device(kind, 0).dlpack_device_type():
            raise InvalidOption(f"{device} for a module for {self.meta.target}", f"tvm.{kind}(0)")
        if self.meta.target == "cuda":
            from . import check_device

            check_device(self.meta.arch)
        # Threads may ask at the same moment; TVM's executable makes one machine at a time.
        with _making_sessions, without_scope_warnings():
            made: list[Session] = []
            for meta in metas or (self.meta, *self.meta.others):
                made.append(Session(self.module, meta, device, made[0] if made else None))
            return made


def load(
    path: str | os.PathLike[str], *, trusted: Iterable[str | os.PathLike[str]] | None = None
) -> CompiledModule:
    """Load a module that export_library wrote. Needs TVM's runtime, not its compiler.

    The file is read once; it may be replaced or overwritten afterwards. A module is code: load only
    modules that you trust.

    Args:
        path: File of the module.
        trusted: PEM files of Ed25519 public keys, one of which must have signed the module
            (``convoy sign``). By default signatures are not checked.

    Returns:
        The compiled module.

    Raises:
        InvalidOption: The file does not exist.
        CorruptArtefact: The file is not a complete module of this version.
        LibraryMissing: The module is for a GPU, and CUDA is not installed.
        UntrustedModule: No trusted key signed the module.
    """
    content = read_sealed(path)
    if trusted is not None:
        from .signature import verify

        verify(path, content, trusted)
    return dataclasses.replace(load_content(content, str(path)), content=b"")


def load_content(content: bytes, name: str) -> CompiledModule:
    """Load the content of an exported file; ``name`` identifies it in errors. Raises like
    :func:`load`. The module keeps the content and can be exported."""
    from . import load_runtime, load_tvm_backends

    load_runtime()
    import tvm_ffi

    no_cuda = load_tvm_backends()
    try:
        with without_scope_warnings(), private_copy(content) as copy:
            module = tvm_ffi.load_module(copy)
        description = _find_meta(module)
    except (RuntimeError, AttributeError, OSError) as err:
        if no_cuda and "load_from_bytes.cuda" in str(err):
            raise LibraryMissing(
                f"{name} for a GPU, and TVM's CUDA runtime does not load ({no_cuda})",
                "a CUDA driver and libcudart.so.13",
            ) from None
        raise CorruptArtefact(f"{name}, which does not load ({err})", "a compiled module") from None
    return CompiledModule(module, Meta.loads(description), content)


def _find_meta(module: tvm.runtime.Module) -> str:
    for part in _all_imports(module):
        if part.kind == "convoy" and (description := str(part["convoy_meta"]())):
            return description
    raise CorruptArtefact("a module without convoy's part", "a module written by export_library")


def _all_imports(module: tvm.runtime.Module) -> list[tvm.runtime.Module]:
    found = [module]
    for part in module.imports:
        found.extend(_all_imports(part))
    return found

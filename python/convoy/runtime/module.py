"""Create a runtime module from the entries of backends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption
from .library import function

if TYPE_CHECKING:
    import tvm_ffi

FORMAT = 1


def create_module(
    entries: Sequence[Mapping[str, Any]],
    blobs: Mapping[str, bytes],
    meta: str = "",
    *,
    arch: int | None = None,
) -> tvm_ffi.Module:
    """Return a runtime module (kind ``convoy``) that can be called, saved and loaded.

    Each entry is a backend's ``Binary.entry`` with a ``symbol``; ``blobs`` are their kernel
    libraries by content hash. ``meta`` is kept and returned by the module's ``convoy_meta()``.
    ``arch`` (compute capability times ten; 0 for kernels that work on host memory) defaults to
    what the entries say. No GPU is needed or touched.

    Raises InvalidOption for entries that do not fit together, CorruptArtefact if a kernel
    library is missing among the blobs.
    """
    if arch is None:
        found = {int(entry["arch"]) for entry in entries if "arch" in entry}
        if len(found) > 1:
            raise InvalidOption(
                f"functions for compute capabilities {sorted(found)}", "one for a whole module"
            )
        if entries and not found:
            raise InvalidOption(
                "functions without 'arch'", "the compute capability that they were built for"
            )
        arch = found.pop() if found else 0
    spec = {
        "format": FORMAT,
        "device": {"arch": arch},
        "functions": [dict(entry) for entry in entries],
        "meta": meta,
    }
    return function("module.create")(json.dumps(spec), dict(blobs))

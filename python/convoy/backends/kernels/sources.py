"""Which of the project's own headers a kernel is made of, and hashes over them."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from ... import paths

#: Folders of ``codegen_dir()`` whose headers are kernels or parts of kernels.
FOLDERS = ("cutlass", "hopper")
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


def closure(header: Path) -> list[Path]:
    """``header`` and every header of the project that it includes, directly or not, sorted.

    Includes are looked up beside the including file, then in ``include_dir()``; what is in
    neither place (CUTLASS, CUDA) is not the project's.
    """
    found: set[Path] = set()
    pending = [header]
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        for name in _INCLUDE.findall(path.read_text()):
            own = [folder / name for folder in (path.parent, paths.include_dir())]
            pending += [candidate for candidate in own if candidate.is_file()][:1]
    return sorted(found)


@functools.cache
def source_hashes() -> dict[str, str]:
    """A short hash for every header in FOLDERS, by its path there (``cutlass/sm90_conv.cuh``).

    It covers the header's :func:`closure`; comments and spacing are left out, since figures
    outlive them.
    """
    root = paths.codegen_dir()
    headers = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.cuh"))]
    return {path.relative_to(root).as_posix(): _hash(closure(path)) for path in headers}


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        code = re.sub(r"//[^\n]*", "", path.read_text())
        digest.update(path.name.encode() + b"\0" + " ".join(code.split()).encode() + b"\0")
    return digest.hexdigest()[:12]

"""CUDA headers of NVIDIA's wheels for NVRTC, where no toolkit is installed.

TVM searches a toolkit: it fails without nvcc on PATH, CUDA_PATH and /usr/local/cuda, and searches
CCCL in ``targets/<platform>/include/cccl``, where a toolkit has it. The wheels have it in
``include/cccl``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tvm.support.nvcc import find_cuda_path

from ..paths import nvidia_wheels

_ROOT, _OPTIONS = "CUDA_PATH", "TVM_CUDA_NVRTC_EXTRA_OPTS"


@contextmanager
def visible() -> Iterator[None]:
    """Have TVM find the headers, by environment variables that are restored."""
    before = {name: os.environ.get(name) for name in (_ROOT, _OPTIONS)}
    found = _variables(before[_ROOT], os.environ.get("PATH", ""))
    if options := found.get(_OPTIONS):
        found = {**found, _OPTIONS: f"{before[_OPTIONS] or ''} {options}"}
    os.environ.update(found)
    try:
        yield
    finally:
        for name in found:
            if (value := before[name]) is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@functools.cache
def _variables(cuda_path: str | None, path: str) -> dict[str, str]:
    """Return the variables that TVM lacks: none if it finds a toolkit, or if there are no wheels.

    ``find_cuda_path`` reads the arguments' variables; as arguments they select the cached answer.
    """
    try:
        found = Path(find_cuda_path())
    except RuntimeError:
        found = Path()
    wheels = [folder / "cu13" for folder in nvidia_wheels()]
    root = next(filter(_has_headers, [found, *wheels]), found)
    cccl = root / "include" / "cccl"
    if any(root.glob("targets/*/include/cccl")) or not cccl.is_dir():
        return {}
    options = {_OPTIONS: f'-I"{cccl}"'}
    return options if root == found else {_ROOT: str(root), **options}


def _has_headers(root: Path) -> bool:
    """Whether a folder is a toolkit's; nvcc may be a script elsewhere that calls another."""
    return any(
        (*root.glob("include/cuda_runtime.h"), *root.glob("targets/*/include/cuda_runtime.h"))
    )

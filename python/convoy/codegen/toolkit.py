"""Finds what a kernel is compiled with: nvcc 13, libcudart.so.13 and the CUTLASS headers."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import LibraryMissing

#: Kernel libraries link against libcudart.so.13, as TVM's CUDA runtime does.
CUDA_MAJOR = 13
_REMEDY = "Run `pip install 'tvm-convoy[nvcc]'`, or set CONVOY_NVCC to an nvcc 13"


@dataclass(frozen=True)
class Toolkit:
    """One usable CUDA compiler.

    ``version`` is nvcc's release line; ``includes`` and ``cudart`` come from the wheels or the
    toolkit; ``cutlass`` is the folder that holds CUTLASS's ``include`` and ``tools``.
    """

    nvcc: Path
    version: str
    includes: tuple[Path, ...]
    cudart: Path
    cutlass: Path
    cutlass_version: str


def find_toolkit() -> Toolkit:
    """The first of: CONVOY_NVCC, nvcc on PATH, CUDA_HOME and CUDA_PATH, the nvidia-cuda-nvcc
    wheel, /usr/local/cuda.

    Raises LibraryMissing with what was looked at, when no nvcc 13, libcudart.so.13 or CUTLASS
    is found.
    """
    return _find(*(os.environ.get(name, "") for name in ("CONVOY_NVCC", "PATH", *_HOMES)))


_HOMES = ("CUDA_HOME", "CUDA_PATH")


@functools.cache
def _find(*_environment: str) -> Toolkit:
    cutlass, cutlass_version = _find_cutlass()
    seen = []
    for nvcc in _nvcc_candidates():
        release = _release(nvcc)
        major = re.search(r"release (\d+)\.", release)
        if major is None or int(major.group(1)) != CUDA_MAJOR:
            seen.append(f"{nvcc} ({release or 'does not run'})")
            continue
        root = nvcc.resolve().parent.parent
        return Toolkit(
            nvcc, release, _include_dirs(root), _find_cudart(root), cutlass, cutlass_version
        )
    raise LibraryMissing(
        f"no nvcc {CUDA_MAJOR} (found: {', '.join(seen) or 'none'})",
        f"the compiler of CUDA {CUDA_MAJOR}, for CUTLASS kernels",
        _REMEDY,
    )


def _nvcc_candidates() -> Iterator[Path]:
    if explicit := os.environ.get("CONVOY_NVCC"):
        yield Path(explicit)
        return
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    folders = [Path(os.environ[name]) for name in _HOMES if os.environ.get(name)]
    folders += [folder / "cu13" for folder in _nvidia_wheels()]
    folders.append(Path("/usr/local/cuda"))
    for folder in folders:
        if (folder / "bin/nvcc").is_file():
            yield folder / "bin/nvcc"


def _nvidia_wheels() -> list[Path]:
    """Folders that the ``nvidia-*`` wheels install into."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


def _release(nvcc: Path) -> str:
    """Nvcc's release line, such as ``release 13.0, V13.0.88``; empty when it does not run."""
    try:
        out = subprocess.run(
            [str(nvcc), "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"release .*", out)
    return match.group(0).strip() if match else ""


def _include_dirs(root: Path) -> tuple[Path, ...]:
    """Header folders that nvcc does not add by itself: those of the wheels' layout, and CCCL."""
    found = []
    for folder in (root / "include", root / "targets/x86_64-linux/include"):
        found += [p for p in (folder, folder / "cccl") if p.is_dir()]
    for wheel in _nvidia_wheels():
        found += [p for p in (wheel / "cu13/include", wheel / "cu13/include/cccl") if p.is_dir()]
    if any((p / "cuda_runtime.h").is_file() for p in found):
        # The first folder with the runtime's headers decides: versions must not be mixed.
        first = next(p for p in found if (p / "cuda_runtime.h").is_file())
        found = [p for p in found if p == first or p == first / "cccl"]
    return tuple(dict.fromkeys(found))


def _find_cudart(root: Path) -> Path:
    folders = [root / "lib64", root / "lib", root / "targets/x86_64-linux/lib"]
    folders += [wheel / "cu13/lib" for wheel in _nvidia_wheels()]
    name = f"libcudart.so.{CUDA_MAJOR}"
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise LibraryMissing(
        f"no {name} (looked at {', '.join(map(str, folders))})",
        "the CUDA runtime library that kernels link against",
        "Run `pip install nvidia-cuda-runtime`",
    )


def _find_cutlass() -> tuple[Path, str]:
    spec = importlib.util.find_spec("cutlass_library")
    if spec is not None and spec.submodule_search_locations:
        source = Path(next(iter(spec.submodule_search_locations))) / "source"
        if (source / "include/cutlass/cutlass.h").is_file():
            return source, importlib.metadata.version("nvidia-cutlass")
    raise LibraryMissing(
        "no CUTLASS headers", "the nvidia-cutlass wheel", "Run `pip install nvidia-cutlass==4.2.0.0`"
    )

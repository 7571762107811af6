"""Find the toolchain of the kernels: nvcc 13, libcudart.so.13 and the CUTLASS headers."""

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

from ... import paths
from ...errors import LibraryMissing
from ...runtime.library import cuda_version_text

#: The version that ``codegen/cutlass`` is written for and pyproject.toml pins.
CUTLASS_VERSION = "4.2.0.0"
#: Kernel libraries link against libcudart.so.13, as TVM's CUDA runtime does.
CUDA_MAJOR = 13


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
        root = _root(nvcc)
        includes, problem = _include_dirs(root, release)
        if problem:
            seen.append(f"{nvcc} ({release}, but {problem})")
            continue
        return Toolkit(nvcc, release, includes, _find_cudart(root), cutlass, cutlass_version)
    raise LibraryMissing(
        f"no nvcc {CUDA_MAJOR} (found: {', '.join(seen) or 'none'})",
        f"the compiler of CUDA {CUDA_MAJOR}, for CUTLASS kernels",
        f"Run `{paths.install_command('nvcc')}`, or set CONVOY_NVCC to an nvcc 13",
    )


def _nvcc_candidates() -> Iterator[Path]:
    if explicit := os.environ.get("CONVOY_NVCC"):
        yield Path(explicit)
        return
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    folders = [Path(os.environ[name]) for name in _HOMES if os.environ.get(name)]
    folders += [folder / "cu13" for folder in paths.nvidia_wheels()]
    folders.append(Path("/usr/local/cuda"))
    for folder in folders:
        if (folder / "bin/nvcc").is_file():
            yield folder / "bin/nvcc"


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


def _root(nvcc: Path) -> Path:
    """Toolkit folder that nvcc reports for itself (it may be wrapped in a script)."""
    command = [str(nvcc), "--dryrun", "-c", "-x", "cu", "/dev/null", "-o", "/dev/null"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return nvcc.resolve().parent.parent
    match = re.search(r"^#\$ TOP=(.+)$", out.stderr, re.MULTILINE)
    return Path(match.group(1).strip()).resolve() if match else nvcc.resolve().parent.parent


def _include_dirs(root: Path, release: str) -> tuple[tuple[Path, ...], str]:
    """Header folders to name besides those that nvcc adds by itself, or what is wrong with them.

    Headers of another minor version than nvcc do not compile, and the nvidia-cuda-runtime wheel
    may well be of another: it is only used where nvcc's own folder has no headers.
    """
    own = [root / "include", root / "targets/x86_64-linux/include"]
    wheels = [wheel / "cu13/include" for wheel in paths.nvidia_wheels()]
    for folder in (*own, *wheels):
        if not (folder / "cuda_runtime.h").is_file():
            continue
        version = _header_version(folder)
        if f"release {version}," not in release:
            return (), f"its headers in {folder} are of {version or 'an unknown version'}"
        extra = [] if folder in own else [folder]
        return (*extra, *(p for p in (folder / "cccl",) if p.is_dir())), ""
    return (), "without the CUDA runtime's headers"


def _header_version(folder: Path) -> str:
    """Version such as ``13.0`` of the CUDA runtime headers in a folder; empty when not found."""
    try:
        text = (folder / "cuda_runtime_api.h").read_text(errors="replace")
    except OSError:
        return ""
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return cuda_version_text(int(match.group(1))) if match else ""


def _find_cudart(root: Path) -> Path:
    folders = [root / "lib64", root / "lib", root / "targets/x86_64-linux/lib"]
    folders += [wheel / "cu13/lib" for wheel in paths.nvidia_wheels()]
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
        "no CUTLASS headers",
        "the nvidia-cutlass wheel",
        f"Run `pip install nvidia-cutlass=={CUTLASS_VERSION}`",
    )

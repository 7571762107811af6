"""Compilers and headers: C++, nvcc, CUTLASS."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ...backends.kernels import shipped
from ...backends.kernels.toolkit import CUTLASS_VERSION, find_toolkit
from ...errors import CorruptArtefact, LibraryMissing
from ...paths import install_command, source_root
from .check import Check

#: The version that headers state: that of the wheel without its last number.
_CUTLASS = CUTLASS_VERSION.rpartition(".")[0]
_TRIVIAL_KERNEL = """
#include <cuda_fp16.h>
__global__ void add(__half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
"""


def _run(*command: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


def cxx() -> Check:
    """Needed to link an exported module."""
    remedy = "apt-get install g++"
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if path := shutil.which(name):
            done = _run(path, "--version")
            if done.returncode == 0 and done.stdout:
                return Check("C++ compiler", "found", f"{done.stdout.splitlines()[0]} at {path}")
            return Check("C++ compiler", "problem", f"{path} does not run", remedy)
    return Check("C++ compiler", "missing", "no g++ or clang++ in PATH", remedy)


def nvcc() -> Check:
    """Compiles the CUTLASS kernels, so it is also asked to compile something."""
    remedy = install_command("nvcc")
    try:
        toolkit = find_toolkit()
    except LibraryMissing as err:
        return Check("nvcc", "missing", err.got, remedy, need="gpu")
    detail = f"{toolkit.version} at {toolkit.nvcc}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "add.cu"
        source.write_text(_TRIVIAL_KERNEL)
        command = [str(toolkit.nvcc), "-arch=sm_90a", "-cubin", "-o", f"{folder}/add.cubin"]
        made = _run(*command, *(f"-I{include}" for include in toolkit.includes), str(source))
    if made.returncode:
        words = (made.stderr or made.stdout).strip().splitlines()
        reason = next((line for line in words if "error" in line), words[-1] if words else "?")
        return Check("nvcc", "problem", f"{detail} cannot compile: {reason}", remedy, need="gpu")
    return Check("nvcc", "found", detail, need="gpu")


def shipped_kernels() -> Check:
    """Without them, or where sources have changed since, nvcc has to compile in their place."""
    name = "shipped kernels"
    remedy = "tuning/ship_kernels.py" if source_root() is not None else install_command()
    try:
        archives = shipped.archives()
    except CorruptArtefact as err:
        return Check(name, "problem", err.got, remedy, need="advice")
    if not archives:
        return Check(name, "missing", "no archive of compiled kernels", remedy, need="advice")
    stale = {a.path.stem: shipped.stale(a, shipped.kernels(a)) for a in archives}
    detail = ", ".join(
        f"{len(a.entries)} for {a.path.stem} ({len(stale[a.path.stem])} stale)" for a in archives
    )
    if any(stale.values()):
        first = next(names[0] for names in stale.values() if names)
        return Check(name, "problem", f"{detail}; the first: {first}", remedy, need="advice")
    return Check(name, "found", detail, need="advice")


def cutlass() -> Check:
    """Headers of the nvidia-cutlass wheel; the copy inside TVM lacks the .inl files."""
    remedy = f'pip install "nvidia-cutlass=={CUTLASS_VERSION}"'
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        return Check("CUTLASS", "missing", "nvidia-cutlass not installed", remedy, need="gpu")
    include = Path(spec.submodule_search_locations[0]) / "source" / "include" / "cutlass"
    header = include / "version.h"
    if not header.is_file():
        return Check("CUTLASS", "missing", f"no headers at {include}", remedy, need="gpu")
    numbers = dict(re.findall(r"#define CUTLASS_(MAJOR|MINOR|PATCH) (\d+)", header.read_text()))
    version = ".".join(numbers.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))
    detail = f"{version} at {include.parent}"
    if version != _CUTLASS:
        wrong = f"{detail}: kernels are written for {_CUTLASS}"
        return Check("CUTLASS", "problem", wrong, remedy, need="gpu")
    if not any(include.rglob("sm90_gmma_builder.inl")):
        return Check("CUTLASS", "problem", f"{detail}: its .inl files are missing", remedy, "gpu")
    return Check("CUTLASS", "found", detail, need="gpu")

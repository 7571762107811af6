"""Versions of the libraries, and the host, of this process."""

from __future__ import annotations

import ctypes
import hashlib
import os
from pathlib import Path

from ..errors import ConvoyError
from ..runtime import library
from ..wheels import version_of


def processor() -> str:
    """Name of the CPU and number of usable cores; empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = dict(
        reversed([[part.strip() for part in line.split(":", 1)] for line in lines if line])
    )
    if not found.get("model name"):
        return ""
    kind = f"model {found.get('model', '?')}.{found.get('stepping', '?')}"
    name = " ".join(found["model name"].split())
    return f"{name} ({kind}), {len(os.sched_getaffinity(0))} cores"


def boot() -> str:
    """Hash of the kernel's boot id; empty if it is not available."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def cudart_version() -> str:
    """Version of the libcudart that TVM and the kernels use; querying it creates no CUDA
    context."""
    version = ctypes.c_int()
    try:
        cudart = ctypes.CDLL(library.locations()["cudart"] or "libcudart.so.13")
        if cudart.cudaRuntimeGetVersion(ctypes.byref(version)) != 0:
            return ""
    except OSError:
        return ""
    return library.cuda_version_text(version.value)


def opened_version(name: str, *wheels: str) -> str:
    """Version of the wheel if its library is used, otherwise as reported by the runtime."""
    opens_wheel = not os.environ.get(f"CONVOY_{name.upper()}")
    if opens_wheel and (version := wheel_version(*wheels)):
        return version
    try:
        return library.version_text(int(library.function(f"{name}.version")()))
    except (ConvoyError, RuntimeError):
        return ""


def wheel_version(*distributions: str) -> str:
    """Major, minor and patch version of the first wheel that is installed; empty if none is."""
    return ".".join(version_of(*distributions).split(".")[:3])


def convoy_version() -> str:
    from .. import __version__

    return __version__

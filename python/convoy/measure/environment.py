"""What a measurement depends on beside workload and candidate: the last part of a record's key."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import paths
from ..backends.base import Device
from ..errors import ConvoyError, InvalidOption
from ..runtime import library
from . import gpu as gpus

Match = Literal["strict", "loose"]
MATCHES: tuple[Match, ...] = ("strict", "loose")

# Fields of Environment that name a library which only some backends use.
LIBRARIES = ("cuda", "cudnn", "cutlass", "kernels")
_CUDNN_WHEELS = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


@dataclass(frozen=True, order=True)
class Environment:
    """Where something was measured. An empty string or 0 means: not known, or of no influence.

    gpu       name as the driver gives it, e.g. ``NVIDIA H200``
    sm_count  multiprocessors (a GPU partition has the name of the whole GPU but fewer of them)
    driver    NVIDIA driver, e.g. ``580.95.05``
    cuda      version of libcudart, e.g. ``13.0``
    cudnn     e.g. ``9.19.1``
    cutlass   e.g. ``4.2.0``
    kernels   hash over the kernel sources that convoy compiles (kernel_source_hash)
    convoy    version that measured; kept for people, never compared
    """

    gpu: str = ""
    sm_count: int = 0
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    cutlass: str = ""
    kernels: str = ""
    convoy: str = ""

    @property
    def id(self) -> str:
        """Short content hash by which records refer to their environment."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def differences(self, other: Environment) -> list[str]:
        """What differs, as text; fields that one side does not know are not compared."""
        found = []
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            if field.name != "convoy" and not _agree(mine, its):
                found.append(f"{field.name} {its} instead of {mine}")
        return found

    def matches(self, other: Environment, mode: Match = "strict") -> bool:
        """Whether figures taken in ``other`` count here.

        ``strict``: the same GPU, and nothing known on both sides differs. ``loose``: the same
        GPU with as many multiprocessors, the same kernel sources, and the same major version of
        cuDNN and CUTLASS; driver, CUDA and minor versions may differ.
        Raises InvalidOption for another mode.
        """
        if mode not in MATCHES:
            raise InvalidOption(f"mode {mode!r}", f"one of {', '.join(MATCHES)}")
        if not self.gpu or self.gpu != other.gpu:
            return False
        if mode == "strict":
            return not self.differences(other)
        return (
            _agree(self.sm_count, other.sm_count)
            and _agree(self.kernels, other.kernels)
            and _same_major(self.cudnn, other.cudnn)
            and _same_major(self.cutlass, other.cutlass)
        )

    def narrowed(self, libraries: Iterable[str]) -> Environment:
        """The same with only these of LIBRARIES, for a candidate that depends on no other one.

        A cuDNN figure stays strictly valid when a kernel source changes:
        ``environment.narrowed(["cudnn"])``. Raises InvalidOption for an unknown library.
        """
        kept = set(libraries)
        if unknown := kept - set(LIBRARIES):
            raise InvalidOption(f"library {min(unknown)!r}", f"of {', '.join(LIBRARIES)}")
        left_out: dict[str, Any] = {name: "" for name in LIBRARIES if name not in kept}
        return dataclasses.replace(self, **left_out)

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Environment:
        """Inverse of :meth:`to_json`; fields of later versions are left out."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


def _agree(mine: object, its: object) -> bool:
    return not mine or not its or mine == its


def _same_major(mine: str, its: str) -> bool:
    return _agree(mine.split(".")[0], its.split(".")[0])


@functools.cache
def current(ordinal: int = 0) -> Environment:
    """The environment of this process: GPU ``ordinal`` (none: empty GPU fields) and libraries.

    Found out once per process; ``current.cache_clear()`` asks again.
    """
    found, _ = gpus.find_gpus()
    libraries = Environment(
        cuda=_cudart_version(),
        cudnn=_cudnn_version(),
        cutlass=_wheel_version("nvidia-cutlass"),
        kernels=kernel_source_hash(),
        convoy=_convoy_version(),
    )
    if ordinal >= len(found):
        return libraries
    gpu = found[ordinal]
    return dataclasses.replace(
        libraries, gpu=gpu.name, sm_count=gpu.sm_count, driver=gpus.driver_version()
    )


def for_device(device: Device) -> Environment:
    """What is known of a device that need not be present: placement from shipped records.

    Libraries are left open, so that any record of that GPU matches strictly.
    """
    return Environment(gpu=device.name, sm_count=device.sm_count, convoy=_convoy_version())


@functools.cache
def kernel_source_hash() -> str:
    """Hash of the kernel sources and of what instantiates them; comments and spacing are left
    out, since figures outlive them."""
    digest = hashlib.sha256()
    root = paths.codegen_dir()
    for folder in ("include", "cutlass", "hopper"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cuh", ".hpp", ".cu"):
                code = re.sub(r"//[^\n]*", "", path.read_text())
                digest.update(path.relative_to(root).as_posix().encode() + b"\0")
                digest.update(" ".join(code.split()).encode() + b"\0")
    emitter = Path(__file__).resolve().parents[1] / "codegen" / "emit.py"
    digest.update(emitter.read_bytes() if emitter.is_file() else b"")
    return digest.hexdigest()[:12]


def _cudart_version() -> str:
    """Of the libcudart that TVM and the kernels use; asking it starts no CUDA context."""
    version = ctypes.c_int()
    try:
        cudart = ctypes.CDLL(library.locations()["cudart"] or "libcudart.so.13")
        if cudart.cudaRuntimeGetVersion(ctypes.byref(version)) != 0:
            return ""
    except OSError:
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _cudnn_version() -> str:
    """Of the wheel where it is the wheel's cuDNN that is used, otherwise told by the runtime."""
    if not os.environ.get("CONVOY_CUDNN"):
        for name in _CUDNN_WHEELS:
            if version := _wheel_version(name):
                return version
    try:
        number = int(library.function("cudnn.version")())
    except (ConvoyError, RuntimeError):
        return ""
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _wheel_version(distribution: str) -> str:
    try:
        return ".".join(importlib.metadata.version(distribution).split(".")[:3])
    except importlib.metadata.PackageNotFoundError:
        return ""


def _convoy_version() -> str:
    from .. import __version__

    return __version__

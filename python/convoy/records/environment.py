"""The environment of a measurement: the part of a record's key besides workload and candidate."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..backends.kernels.sources import source_hashes
from ..errors import ConvoyError, InvalidOption
from ..ir import fields as checks
from ..ir.device import Device
from ..measure import gpu as gpus
from ..runtime import library
from . import upgrade

Match = Literal["strict", "loose"]
MATCHES: tuple[Match, ...] = ("strict", "loose")

# Fields of Environment that name a library which only some backends use.
LIBRARIES = ("cuda", "cudnn", "cublas", "cutlass", "kernels")
_CUDNN_WHEELS = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


@dataclass(frozen=True, order=True)
class Environment:
    """Where something was measured. An empty string or 0 means: not known, or of no influence.

    gpu       name as the driver gives it, e.g. ``NVIDIA H200``
    sm_count  SMs (a GPU partition has the name of the whole GPU but fewer of them)
    driver    NVIDIA driver, e.g. ``580.95.05``
    cuda      version of libcudart, e.g. ``13.0``
    cudnn     e.g. ``9.19.1``
    cutlass   e.g. ``4.2.0``
    kernels   hashes of the kernel sources that convoy compiles, ``HEADER=HASH`` each: all of
              them for a machine, the one that matters for a record
    convoy    version that measured; kept for people, never compared
    host      processor beside the GPU, by name: never compared here, because kernels do not depend
              on it; host times do (placement.host)
    boot      which start of which machine, as a short hash; never compared here either. Virtual
              machines of very different speed may give one name to their processors
    cublas    of cuBLASLt, e.g. ``13.10.0``
    """

    gpu: str = ""
    sm_count: int = 0
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    cutlass: str = ""
    kernels: str = ""
    convoy: str = ""
    host: str = ""
    boot: str = ""
    cublas: str = ""

    @functools.cached_property
    def id(self) -> str:
        """Short content hash by which records refer to their environment."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def differences(self, other: Environment) -> list[str]:
        """Describe the differences; fields that one side does not know are not compared."""
        found = []
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            if field.name == "kernels" and not same_kernels(mine, its):
                found.append("other kernel sources")
            elif field.name not in ("convoy", "host", "boot", "kernels") and not _agree(mine, its):
                found.append(f"{field.name} {its} instead of {mine}")
        return found

    def matches(self, other: Environment, mode: Match = "strict") -> bool:
        """Whether measurements taken in ``other`` count here.

        ``strict``: the same GPU, and nothing known on both sides differs. ``loose``: the same
        GPU with as many SMs, the same kernel sources, the same cuBLAS, whose
        algorithms are kept as bytes, and the same major version of cuDNN and CUTLASS; driver, CUDA
        and minor versions may differ.
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
            and same_kernels(self.kernels, other.kernels)
            and _same_major(self.cudnn, other.cudnn)
            and _same_major(self.cutlass, other.cutlass)
            and _agree(self.cublas, other.cublas)
        )

    def narrowed(self, libraries: Iterable[str], kernel_source: str = "") -> Environment:
        """The same with only these of LIBRARIES, for a candidate that depends on no other one.

        A cuDNN measurement stays strictly valid when a kernel source changes:
        ``environment.narrowed(["cudnn"])``; that of a kernel when another kernel's source does:
        ``narrowed(["cuda", "kernels"], "sm90/stem_fprop_library.cuh")``.
        Raises InvalidOption for an unknown library.
        """
        kept = set(libraries)
        if unknown := kept - set(LIBRARIES):
            raise InvalidOption(f"library {min(unknown)!r}", f"of {', '.join(LIBRARIES)}")
        left_out: dict[str, Any] = {name: "" for name in LIBRARIES if name not in kept}
        if "kernels" in kept and kernel_source:
            known = _parse_kernels(self.kernels).get(kernel_source)
            left_out["kernels"] = f"{kernel_source}={known}" if known else ""
        return dataclasses.replace(self, **left_out)

    def to_json(self) -> dict[str, object]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v}

    @classmethod
    def from_json(cls, data: object) -> Environment:
        """Inverse of :meth:`to_json`, also of earlier versions' (:mod:`.upgrade`); fields of
        later versions are left out. Raises InvalidOption naming the field."""
        if isinstance(data, dict):
            data = {name: value for name, value in data.items() if name in _FIELDS}
        return checks.made(
            lambda kernels="", **rest: cls(kernels=upgrade.kernels(kernels), **rest),
            data, _FIELDS, "environment", InvalidOption,
        )  # fmt: skip


_FIELDS: dict[str, checks.Check] = {
    **{field.name: checks.text() for field in dataclasses.fields(Environment)},
    "sm_count": checks.integer(0, 1 << 20),
    "kernels": checks.text(1 << 14),
}


def same_kernels(mine: str, its: str) -> bool:
    """Whether two ``kernels`` fields agree in every header that both name; where both are known
    and name none in common, they do not."""
    if not mine or not its:
        return True
    left, right = _parse_kernels(mine), _parse_kernels(its)
    shared = left.keys() & right.keys()
    return bool(shared) and all(left[name] == right[name] for name in shared)


@functools.lru_cache(maxsize=256)
def _parse_kernels(text: str) -> dict[str, str]:
    pairs = (part.rpartition("=") for part in text.split())
    return {name: digest for name, _, digest in pairs}


def kernel_hashes() -> str:
    """The ``kernels`` field of this installation: every header that a kernel can start from."""
    return " ".join(f"{name}={digest}" for name, digest in source_hashes().items())


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
        cudnn=_opened_version("cudnn", _CUDNN_WHEELS),
        cublas=_opened_version("cublaslt", ("nvidia-cublas",)),
        cutlass=_wheel_version("nvidia-cutlass"),
        kernels=kernel_hashes(),
        convoy=_convoy_version(),
        host=_processor(),
        boot=_boot(),
    )
    if ordinal >= len(found):
        return libraries
    gpu = found[ordinal]
    return dataclasses.replace(
        libraries, gpu=gpu.name, sm_count=gpu.sm_count, driver=gpus.driver_version()
    )


def for_device(device: Device) -> Environment:
    """Return the known fields of a device that need not be present, to place from shipped records.

    Libraries are left open, so that any record of that GPU matches strictly.
    """
    return Environment(gpu=device.name, sm_count=device.sm_count, convoy=_convoy_version())


def _processor() -> str:
    """Name of the processor and how many of it there are to use; empty if it is not told."""
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


def _boot() -> str:
    """Hash of the kernel's boot id; empty if there is none."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _cudart_version() -> str:
    """Version of the libcudart that TVM and the kernels use; querying it creates no CUDA
    context."""
    version = ctypes.c_int()
    try:
        cudart = ctypes.CDLL(library.locations()["cudart"] or "libcudart.so.13")
        if cudart.cudaRuntimeGetVersion(ctypes.byref(version)) != 0:
            return ""
    except OSError:
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _opened_version(name: str, wheels: Iterable[str]) -> str:
    """Version of the wheel if its library is used, otherwise as reported by the runtime."""
    if not os.environ.get(f"CONVOY_{name.upper()}"):
        for wheel in wheels:
            if version := _wheel_version(wheel):
                return version
    try:
        number = int(library.function(f"{name}.version")())
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

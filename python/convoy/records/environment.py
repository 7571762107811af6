"""The environment of a measurement: the part of a record's key besides workload and candidate."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..backends.kernels.sources import source_hashes
from ..errors import InvalidOption
from ..ir import fields as checks
from ..ir.device import Device
from ..measure import gpu as gpus
from . import probe, upgrade

Match = Literal["strict", "loose"]
MATCHES: tuple[Match, ...] = ("strict", "loose")

# Fields of Environment that name a library which only some backends use.
LIBRARIES = ("cuda", "cudnn", "cublas", "cutlass", "kernels")


@dataclass(frozen=True, order=True)
class Environment:
    """The machine and the software of a measurement.

    An empty string or 0 means: not known, or of no influence.

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
              on it; host times do (cost/host.py)
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
        """Return whether measurements taken in ``other`` count here.

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
        """Return the environment with only these of LIBRARIES, for a candidate that depends on no
        others.

        A cuDNN measurement stays strictly valid when a kernel source changes:
        ``environment.narrowed(["cudnn"])``; that of a kernel when another kernel's source does:
        ``narrowed(["cuda", "kernels"], "sm90/stem_fprop_library.cuh")``. Raises InvalidOption for
        an unknown library.
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
    """Return whether two ``kernels`` fields agree in every header that both name; False if both are
    known and have no header in common."""
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
    """Return the ``kernels`` field of this installation: every header that a kernel can start
    from."""
    return " ".join(f"{name}={digest}" for name, digest in source_hashes().items())


def _agree(mine: object, its: object) -> bool:
    return not mine or not its or mine == its


def _same_major(mine: str, its: str) -> bool:
    return _agree(mine.split(".")[0], its.split(".")[0])


@functools.cache
def current(ordinal: int = 0) -> Environment:
    """Return the environment of this process: GPU ``ordinal`` (empty GPU fields if there is none)
    and libraries.

    Detected once per process; ``current.cache_clear()`` detects it again.
    """
    found, _ = gpus.find_gpus()
    libraries = Environment(
        cuda=probe.cudart_version(),
        cudnn=probe.opened_version("cudnn", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
        cublas=probe.opened_version("cublaslt", "nvidia-cublas"),
        cutlass=probe.wheel_version("nvidia-cutlass"),
        kernels=kernel_hashes(),
        convoy=probe.convoy_version(),
        host=probe.processor(),
        boot=probe.boot(),
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
    return Environment(gpu=device.name, sm_count=device.sm_count, convoy=probe.convoy_version())

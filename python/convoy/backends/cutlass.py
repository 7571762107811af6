"""CUTLASS kernels as a backend: compiled on this machine on demand, one library a kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from types import ModuleType

from ..errors import ConvoyError, InvalidOption
from ..ir.candidate import Candidate, Decline, make_config
from ..ir.device import Device
from ..ir.workload import Workload
from .base import Backend, Binary
from .kernels.cache import KernelCache
from .kernels.compile import Progress, cache_key, compile_kernel, compile_many
from .kernels.cutlass import dgrad as cutlass_dgrad
from .kernels.cutlass import rules as cutlass_rules
from .kernels.cutlass import space as space
from .kernels.cutlass import wgrad as cutlass_wgrad
from .kernels.cutlass.rules import Launch
from .kernels.kernel import KernelConfig
from .kernels.toolkit import find_toolkit

_log = logging.getLogger(__name__)

#: Candidates of one workload, unless CONVOY_CUTLASS_LIMIT says otherwise.
MOST_CANDIDATES = 20


class CutlassBackend(Backend):
    """Convolutions in all three directions and matrix products on sm80 and later; sm90 has kernels
    of its own, but for strided dgrad and for tf32 in the backward directions.

    ``limit`` caps the candidates of a workload (for tests and short tuning runs); it defaults to
    the environment variable CONVOY_CUTLASS_LIMIT, then to MOST_CANDIDATES.
    """

    name = "cutlass"
    libraries = ("cuda", "cutlass", "kernels")

    def __init__(self, limit: int | None = None, progress: Progress | None = None) -> None:
        self._limit = limit if limit is not None else _limit_from_environment()
        self._progress = progress
        self._failed: dict[KernelConfig, ConvoyError] = {}

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        """None when the rules of op, groups, dtypes, channels and architecture allow a kernel."""
        for reason, remedy in _objections(workload, device):
            return Decline(self.name, reason, remedy)
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates, best guess first: needs no compiler, only :meth:`build` does."""
        if (decline := self.accepts(workload, device)) is not None:
            return decline
        rules = rules_of(workload)
        possible = [
            launch
            for config in rules.kernels(workload, device.arch)
            for launch in rules.launches(config, workload, device)
        ]
        valid = [launch for launch in possible if not rules.why_not(launch, workload, device)]
        hopeful = [x for x in valid if rules.is_hopeful(x.config, workload, device)] or valid
        if not hopeful:
            reasons = {rules.why_not(launch, workload, device) for launch in possible}
            return Decline(
                self.name,
                "no kernel fits: " + ("; ".join(sorted(reasons)) or "no vector width divides C, K"),
                "see the limits named; another backend may take it",
            )
        ranked = sorted(hopeful, key=lambda x: _guess(x, workload, device))
        return [
            self._candidate(launch, workload, rank)
            for rank, launch in enumerate(ranked[: self._limit])
        ]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Compiles (or takes from the cache) the candidate's kernel library.

        Raises LibraryMissing, CompileFailed, CacheUnwritable, and InvalidOption for a candidate
        of another workload.
        """
        launch = launch_of(candidate)
        if reason := rules_of(workload).why_not(launch, workload, device):
            raise InvalidOption(
                f"candidate {candidate.key} for {workload.key}", f"one that fits ({reason})"
            )
        if (error := self._failed.get(launch.config)) is not None:
            raise error
        entry = compile_kernel(launch.config)
        return Binary(
            {
                "workload": workload.to_json(),
                "backend": "kernel",
                "library": entry.sha256,
                "split_k": launch.split_k,
                "swizzle": launch.swizzle,
            },
            {entry.sha256: entry.read()},
        )

    def prepare(self, jobs: Sequence[tuple[Workload, Candidate]], device: Device) -> None:
        """Compiles all kernels of the jobs in parallel. A kernel that fails is logged here and
        raises its CompileFailed when it is built."""
        configs = {launch_of(candidate).config for _, candidate in jobs} - self._failed.keys()
        for config, result in compile_many(configs, progress=self._progress).items():
            if isinstance(result, ConvoyError):
                self._failed[config] = result
                _log.warning("%s", result)

    def kernel_source(self, candidate: Candidate) -> str:
        return f"cutlass/{launch_of(candidate).config.family}.cuh"

    def is_ready(self, candidate: Candidate) -> bool:
        return KernelCache().get(cache_key(launch_of(candidate).config, find_toolkit())) is not None

    def _candidate(self, launch: Launch, workload: Workload, rank: int) -> Candidate:
        config = launch.config
        name = config.mechanics
        name += f".split{launch.split_k}" if launch.split_k > 1 else ""
        name += f".swizzle{launch.swizzle}" if launch.swizzle else ""
        notes = ["tensor_core"]
        notes += ["tf32"] if config.dtype == "float32" else []
        return Candidate(
            backend=self.name,
            kernel=name,
            config=make_config(
                kernel=config.to_json(), split_k=launch.split_k, swizzle=launch.swizzle
            ),
            workspace=rules_of(workload).workspace_bytes(launch, workload),
            priority=rank,
            notes=tuple(notes),
        )


def rules_of(workload: Workload) -> ModuleType:
    """The module that knows the kernels of the workload's direction, and which of them fit."""
    return {"dgrad": cutlass_dgrad, "wgrad": cutlass_wgrad}.get(workload.op, cutlass_rules)


def launch_of(candidate: Candidate) -> Launch:
    """Kernel and run-time choices of a candidate. Raises InvalidOption when it is not of here."""
    options = candidate.options()
    try:
        config = KernelConfig.from_json(options["kernel"])
        return Launch(config, int(options["split_k"]), int(options["swizzle"]))
    except KeyError as error:
        raise InvalidOption(
            f"candidate {candidate.key} without {error}", "a candidate of the cutlass backend"
        ) from None


def _objections(workload: Workload, device: Device) -> list[tuple[str, str]]:
    """(reason, remedy) of everything that rules out all kernels, most telling first."""
    found = []
    w = workload
    if w.op in ("dgrad", "wgrad") and w.epilogue.name:
        found.append((f"epilogue {w.epilogue.name} on {w.op}", "leave it outside the region"))
    if w.op == "dgrad" and w.stride != (1, 1) and w.dilation != (1, 1):
        found.append(("strided dgrad with dilation", "use the cudnn backend"))
    if w.is_depthwise:
        found.append(("depthwise convolution", "use the cudnn or tvm backend"))
    elif w.groups != 1:
        found.append((f"groups = {w.groups}", "use the cudnn backend"))
    if device.arch < 80:
        found.append((f"architecture sm_{device.arch}: kernels need sm_80 or later", ""))
    if w.acc_dtype != "float32":
        found.append((f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""))
    if w.dtype == "float32" and w.math != "tf32":
        found.append(("strict float32: kernels round operands to tf32", "set math='tf32'"))
    if w.dtype != w.out_dtype and w.out_dtype != "float32":
        found.append((f"{w.dtype} in, {w.out_dtype} out", "equal dtypes, or float32 out"))
    for name, count, dtype in (("C", w.c, w.dtype), ("K", w.k, w.out_dtype)):
        if not space.vector_width(count, dtype):
            found.append((f"{name} = {count} is odd", f"pad {name} to a multiple of 8"))
    return found


def _guess(launch: Launch, workload: Workload, device: Device) -> tuple[float, str]:
    """A rough time to order candidates by: waves of tiles times main loop steps and overhead."""
    config, rules = launch.config, rules_of(workload)
    if workload.op == "wgrad":
        name = f"{config.name}.{launch.split_k}"
        return cutlass_wgrad.guess(launch, workload, device), name
    m, n, _ = config.tile
    tiles = rules.output_tiles(config, workload) * launch.split_k
    waves = -(-tiles // device.sm_count)
    steps = rules.reduction_tiles(config, workload) / launch.split_k
    rate = 1.0 if config.is_sm90 else 2.0  # mma.sync reaches about half of what wgmma does
    area = m * n * config.tile[2] / (128 * 128 * 64)
    time = waves * (steps * max(area, 0.2) * rate + 3.0)
    if launch.split_k > 1:
        time += 6.0
    return time, f"{config.name}.{launch.split_k}.{launch.swizzle}"


def _limit_from_environment() -> int:
    text = os.environ.get("CONVOY_CUTLASS_LIMIT", str(MOST_CANDIDATES))
    if not text.isdigit() or int(text) < 1:
        raise InvalidOption(f"CONVOY_CUTLASS_LIMIT={text}", "a positive number")
    return int(text)

"""Backends of compiled kernel libraries: one class, and a :class:`Family` for each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from ... import programmatic
from ...errors import CacheUnwritable, CompileFailed, ConvoyError, InvalidOption, LibraryMissing
from ...ir import fields as checks
from ...ir.candidate import Candidate, Decline, make_config
from ...ir.device import Device
from ...ir.workload import Workload
from ..base import Backend, Binary
from .compile import compile_kernel, compile_many, is_compiled
from .kernel import K, Launch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Family(Generic[K]):
    """Kernels of one folder of ``codegen``, and the rules by which they are chosen.

    name             of the backend, in records, plans and ``backends=(...)``
    libraries        what its measurements depend on (``Backend.libraries``)
    objections       (reason, remedy) of all that rules every kernel out, most telling first
    launches         valid launches of a workload without objections, best guess first; a Decline
                     where none is
    why_not          why a launch cannot run a workload; empty when it can
    workspace_bytes  workspace of a launch
    kernel_from_json inverse of ``Kernel.to_json``; raises InvalidOption
    limit            most candidates of a workload
    splits           whether launches choose ``split_k``, which candidates then carry
    tensor_cores     whether the kernels use tensor cores, with tf32 for float32
    estimate_us      time of a launch by a model, in microseconds; None without one
    is_programmatic  whether a kernel can start on sm_90 before its predecessor has ended; None if
                     none can
    sliced           the kernel that computes the same of slices of wider tensors, and the operands
                     of a workload that may be such; None of a kernel without one
    """

    name: str
    libraries: tuple[str, ...]
    objections: Callable[[Workload, Device], Iterable[tuple[str, str]]]
    launches: Callable[[Workload, Device], Sequence[Launch[K]] | Decline]
    why_not: Callable[[Launch[K], Workload, Device], str]
    workspace_bytes: Callable[[Launch[K], Workload, Device], int]
    kernel_from_json: Callable[[object], K]
    limit: int
    splits: bool = False
    tensor_cores: bool = True
    estimate_us: Callable[[Launch[K], Workload, Device], float] | None = None
    is_programmatic: Callable[[K], bool] | None = None
    sliced: Callable[[K, Workload], tuple[K, frozenset[str]] | None] | None = None


class KernelBackend(Backend, Generic[K]):
    """Kernels that are compiled with nvcc on this machine on demand, one library each."""

    def __init__(self, family: Family[K]) -> None:
        self.family, self.name, self.libraries = family, family.name, family.libraries
        self._failed: dict[K, CompileFailed] = {}
        self._launches: dict[str, Launch[K]] = {}  # by config

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        if workload.is_3d:
            return self.decline("a convolution over volumes", "use the cudnn backend")
        for reason, remedy in self.family.objections(workload, device):
            return self.decline(reason, remedy)
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates, best guess first: needs no compiler, only :meth:`build` does."""
        return self._propose(workload, device, compiled=False)

    def propose_all(
        self, workloads: Sequence[Workload], device: Device, compiled: bool = False
    ) -> list[Sequence[Candidate] | Decline]:
        return [self._propose(workload, device, compiled) for workload in workloads]

    def _propose(
        self, workload: Workload, device: Device, compiled: bool
    ) -> Sequence[Candidate] | Decline:
        if (decline := self.accepts(workload, device)) is not None:
            return decline
        launches = self.family.launches(workload, device)
        if isinstance(launches, Decline):
            return launches
        if compiled:
            launches = [launch for launch in launches if is_compiled(launch.kernel)]
        if not launches:
            return self.decline("no compiled kernel fits", 'compile others: kernels="all"')
        return [
            self._candidate(launch, workload, device, rank)
            for rank, launch in enumerate(launches[: self.family.limit])
        ]

    def launch_of(self, candidate: Candidate) -> Launch[K]:
        """Kernel and run-time choices of a candidate. Raises InvalidOption when it is not of
        this backend."""
        if (known := self._launches.get(candidate.config)) is not None:
            return known
        fields: dict[str, checks.Check] = {
            "kernel": self.family.kernel_from_json, "swizzle": checks.integer(),
        }  # fmt: skip
        if self.family.splits:
            fields["split_k"] = checks.integer(1)
        what = f"candidate {candidate.key} of the {self.name} backend"
        options = candidate.options()
        launch: Launch[K] = checks.made(Launch, options, fields, what, InvalidOption, fields)
        self._launches[candidate.config] = launch
        return launch

    def check(self, candidate: Candidate) -> None:
        self.launch_of(candidate)

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Compile the candidate's kernel library, or take it from the cache.

        Raises LibraryMissing, CompileFailed, CacheUnwritable, and InvalidOption for a candidate
        that is not of this backend or not for this workload.
        """
        launch = self.launch_of(candidate)
        decline = self.accepts(workload, device)
        if reason := decline.reason if decline else self.family.why_not(launch, workload, device):
            raise InvalidOption(
                f"candidate {candidate.key} for {workload.key}",
                f"a kernel for this workload ({reason})",
            )
        if (error := self._failed.get(launch.kernel)) is not None:
            raise error
        entry = compile_kernel(launch.kernel)
        return Binary(
            {
                "workload": workload.to_json(),
                "backend": "kernel",
                "library": entry.sha256,
                "split_k": launch.split_k,
                "swizzle": launch.swizzle,
                "programmatic": self.is_programmatic(candidate, device),
            },
            {entry.sha256: entry.library},
        )

    def sliceable(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> frozenset[str] | Decline:
        """Return the operands of the kernel for slices, if it is compiled."""
        kernel = self.launch_of(candidate).kernel
        found = self.family.sliced(kernel, workload) if self.family.sliced else None
        if found is None:
            return self.decline(f"{kernel.label} takes compact tensors", "slices are copied")
        sliced, operands = found
        if not is_compiled(sliced):
            return self.decline(f"{sliced.name} is not compiled", "ship it: tuning/ship_kernels.py")
        return operands

    def build_sliced(
        self,
        workload: Workload,
        candidate: Candidate,
        device: Device,
        row_strides: Mapping[str, int],
    ) -> Binary:
        binary = super().build_sliced(workload, candidate, device, row_strides)
        found = self.family.sliced and self.family.sliced(
            self.launch_of(candidate).kernel, workload
        )
        if not found:
            raise InvalidOption(
                f"candidate {candidate.key} for slices", "a kernel that reads and writes them"
            )
        entry = compile_kernel(found[0])
        return Binary({**binary.entry, "library": entry.sha256}, {entry.sha256: entry.library})

    def prepare(
        self, jobs: Sequence[tuple[Workload, Candidate]], device: Device
    ) -> dict[Candidate, ConvoyError]:
        """Compile all kernels of the jobs in parallel."""
        failed: dict[Candidate, ConvoyError] = {}
        kernels: dict[Candidate, K] = {}
        for _, candidate in jobs:
            try:
                kernels[candidate] = self.launch_of(candidate).kernel
            except InvalidOption as error:  # of another version's plan or record
                failed[candidate] = error
        wanted = set(kernels.values()) - self._failed.keys()
        try:
            for kernel, result in compile_many(wanted).items():
                if isinstance(result, CompileFailed):
                    self._failed[kernel] = result
                    _log.warning("%s", result)
        except (LibraryMissing, CacheUnwritable) as error:
            _log.warning("%s", error)
            return failed | {c: self._failed.get(k, error) for c, k in kernels.items()}
        return failed | {c: self._failed[k] for c, k in kernels.items() if k in self._failed}

    def kernel_source(self, candidate: Candidate) -> str:
        return self.launch_of(candidate).kernel.header

    def estimate_us(self, workload: Workload, candidate: Candidate, device: Device) -> float | None:
        if self.family.estimate_us is None:
            return None
        return self.family.estimate_us(self.launch_of(candidate), workload, device)

    def is_programmatic(self, candidate: Candidate, device: Device) -> bool:
        can = self.family.is_programmatic
        if can is None or device.arch != 90 or not programmatic.wanted():
            return False  # code for later GPUs is JIT-compiled from the PTX of sm_80
        return can(self.launch_of(candidate).kernel)

    def is_ready(self, candidate: Candidate) -> bool:
        return is_compiled(self.launch_of(candidate).kernel)

    def _candidate(
        self, launch: Launch[K], workload: Workload, device: Device, rank: int
    ) -> Candidate:
        split = {"split_k": launch.split_k} if self.family.splits else {}
        return Candidate(
            backend=self.name,
            kernel=launch.label,
            config=make_config(kernel=launch.kernel.to_json(), swizzle=launch.swizzle, **split),
            workspace=self.family.workspace_bytes(launch, workload, device),
            priority=rank,
            notes=self._notes(workload),
        )

    def _notes(self, workload: Workload) -> tuple[str, ...]:
        if not self.family.tensor_cores:
            return ()
        return ("tensor_core", *(["tf32"] if workload.math == "tf32" else []))

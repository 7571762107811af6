"""The interface of a backend: propose candidates for a workload, or decline with a reason."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConvoyError
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.workload import Workload

if TYPE_CHECKING:
    from ..partition.patterns import Pattern


@dataclass(frozen=True)
class Binary:
    """A built candidate's part of the exported module.

    ``entry`` is the JSON description of the function for the C++ runtime; ``blobs`` maps content
    hashes to the kernel libraries that ``entry`` refers to.
    """

    entry: dict[str, object]
    blobs: dict[str, bytes]


class Backend(abc.ABC):
    """Base class of all backends. Backends are stateless apart from caches, and thread-safe."""

    name: str
    #: Libraries that measurements of its candidates depend on, of records.environment.LIBRARIES.
    libraries: tuple[str, ...] = ("cuda", "cudnn", "cutlass", "kernels")
    #: Additional CPU time of a launch after launches of other kernels, as in a network, in
    #: microseconds: of an asynchronous launch, and of a synchronized call.
    after_others_us: tuple[float, float] = (0.0, 0.0)

    @abc.abstractmethod
    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        """Check the workload by cheap rules. Return None if a candidate may exist."""

    def decline(self, reason: str, remedy: str = "") -> Decline:
        """Return a Decline of this backend."""
        return Decline(self.name, reason, remedy)

    @abc.abstractmethod
    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Return all candidates worth measuring, the most promising first, or a Decline. Raises
        LibraryMissing if its library is not installed; never raises for an unsupported workload."""

    def propose_all(
        self, workloads: Sequence[Workload], device: Device, compiled: bool = False
    ) -> list[Sequence[Candidate] | Decline]:
        """Call :meth:`propose` for each workload, in parallel if that helps; keep the order.

        With ``compiled``, return only candidates that need no compiler run (:meth:`is_ready`).
        """
        answers = [self.propose(workload, device) for workload in workloads]
        return [self.ready(answer) for answer in answers] if compiled else answers

    def ready(self, answer: Sequence[Candidate] | Decline) -> Sequence[Candidate] | Decline:
        """Return the candidates of :meth:`propose` that need no compiler run."""
        if isinstance(answer, Decline):
            return answer
        found = [candidate for candidate in answer if self.is_ready(candidate)]
        if answer and not found:
            return self.decline("no compiled kernel fits", 'compile others: kernels="all"')
        return found

    def neighbours(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> Sequence[Candidate]:
        """Return valid variations of a candidate that :meth:`propose` does not return, for a local
        search. Optional."""
        return ()

    @abc.abstractmethod
    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Build a candidate. Raises CompileFailed or LibraryMissing."""

    def sliceable(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> frozenset[str] | Decline:
        """Return the operands of a candidate that may be some channels of wider tensors: rows lie
        further apart than their elements, by multiples of 16 bytes. They are then read and written
        in the wider tensor. A backend that overrides this also overrides :meth:`build_sliced`."""
        return self.decline("kernels of compact tensors", "slices are copied")

    def build_sliced(
        self,
        workload: Workload,
        candidate: Candidate,
        device: Device,
        row_strides: Mapping[str, int],
    ) -> Binary:
        """Build a candidate as :meth:`build` does, for operands whose rows lie ``row_strides``
        elements apart."""
        binary = self.build(workload, candidate, device)
        sliced = {**workload.to_json(), "row_strides": dict(row_strides)}
        return Binary({**binary.entry, "workload": sliced}, binary.blobs)

    def patterns(self) -> Sequence[Pattern]:
        """Return patterns to add to the built-in ones. Their workloads are offered to all
        backends."""
        return ()

    def estimate_us(self, workload: Workload, candidate: Candidate, device: Device) -> float | None:
        """Estimate the time of an unmeasured candidate by a model of the kernel, in microseconds.
        None leaves the estimate to records of similar workloads. Optional."""
        return None

    def is_programmatic(self, candidate: Candidate, device: Device) -> bool:
        """Return whether modules that are built now launch the candidate programmatically: it
        starts before its predecessor has ended, and lets its successor do so."""
        return False

    def check(self, candidate: Candidate) -> None:
        """Raise InvalidOption for a candidate that this backend did not propose, for example from a
        damaged file. Nothing is built."""
        candidate.options()

    def kernel_source(self, candidate: Candidate) -> str:
        """Return the header of the candidate's kernel, as a path in ``codegen``; empty for
        candidates that are not compiled by Convoy."""
        return ""

    def is_ready(self, candidate: Candidate) -> bool:
        """Return whether :meth:`build` needs no compiler run, because the kernel is cached or there
        is none to compile. Raises LibraryMissing if the compiler's version is needed."""
        return True

    def prepare(
        self, jobs: Sequence[tuple[Workload, Candidate]], device: Device
    ) -> Mapping[Candidate, ConvoyError]:
        """Build many candidates ahead of time, in parallel if that helps. Optional.

        Returns:
            The candidates that cannot be built, with the error, such as a kernel that does not
            compile or a missing compiler. :meth:`build` raises the same for them, and placement
            uses the next best candidate.
        """
        return {}

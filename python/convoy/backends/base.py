"""The interface of a backend: propose candidates for a workload, or decline with a reason."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConvoyError
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.workload import Workload

if TYPE_CHECKING:
    from ..partition.patterns import Pattern


@dataclass(frozen=True)
class Binary:
    """Part of the exported module that a built candidate adds.

    ``entry`` is the JSON description that the C++ runtime reads for this function;
    ``blobs`` maps content hashes to kernel library bytes referenced by ``entry``.
    """

    entry: dict[str, Any]
    blobs: dict[str, bytes]


class Backend(abc.ABC):
    """Base class of all backends. Stateless apart from caches; safe to share between threads."""

    name: str
    #: What a measurement of its candidates depends on; of records.environment.LIBRARIES.
    libraries: tuple[str, ...] = ("cuda", "cudnn", "cutlass", "kernels")
    #: Microseconds of CPU time that a launch takes longer behind other launches, as in a network,
    #: than when it is measured repeatedly: for an asynchronous launch, and for a synchronised call.
    after_others_us: tuple[float, float] = (0.0, 0.0)

    @abc.abstractmethod
    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        """Cheap check by rules alone; None when some candidate may exist."""

    @abc.abstractmethod
    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """All candidates worth measuring, best guess first, or a Decline. Never raises for a
        workload that it cannot do; raises LibraryMissing where its library is not installed."""

    def propose_all(
        self, workloads: Sequence[Workload], device: Device, compiled: bool = False
    ) -> list[Sequence[Candidate] | Decline]:
        """:meth:`propose` of each of them, in their order, in parallel where that helps.

        With ``compiled`` only candidates that need no compiler run (:meth:`is_ready`).
        """
        answers = [self.propose(workload, device) for workload in workloads]
        return [self.ready(answer) for answer in answers] if compiled else answers

    def ready(self, answer: Sequence[Candidate] | Decline) -> Sequence[Candidate] | Decline:
        """Of an answer of :meth:`propose` what needs no compiler run."""
        if isinstance(answer, Decline):
            return answer
        found = [candidate for candidate in answer if self.is_ready(candidate)]
        if answer and not found:
            return Decline(self.name, "no compiled kernel fits", 'compile others: kernels="all"')
        return found

    def neighbours(
        self, workload: Workload, candidate: Candidate, device: Device
    ) -> Sequence[Candidate]:
        """Valid variations of one of its candidates that :meth:`propose` leaves out, for a search
        around the best. Optional."""
        return ()

    @abc.abstractmethod
    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Make the candidate runnable; raises CompileFailed or LibraryMissing."""

    def patterns(self) -> Sequence[Pattern]:
        """Patterns that this backend adds to the built-in ones. The workloads that they match are
        offered to all backends."""
        return ()

    def estimate_us(self, workload: Workload, candidate: Candidate, device: Device) -> float | None:
        """Time of one of its candidates by a model of the kernel, in microseconds, for want of a
        measurement; None without a model, which leaves the estimate to records of similar
        workloads. Optional."""
        return None

    def check(self, candidate: Candidate) -> None:
        """Raise InvalidOption for a candidate that this backend did not propose, such as one of a
        damaged file; nothing is built."""
        candidate.options()

    def kernel_source(self, candidate: Candidate) -> str:
        """The header that the candidate's kernel is compiled from, as its path in the folder
        ``codegen``; empty for candidates that convoy does not compile."""
        return ""

    def is_ready(self, candidate: Candidate) -> bool:
        """Whether :meth:`build` needs no compiler run: the kernel lies in the cache, or there is
        none to compile. Raises LibraryMissing where the compiler's version must be known."""
        return True

    def prepare(
        self, jobs: Sequence[tuple[Workload, Candidate]], device: Device
    ) -> Mapping[Candidate, ConvoyError]:
        """Build many candidates ahead of time, in parallel where that helps. Optional.

        Returns:
            Those of the jobs' candidates that cannot be built, with the reason: a kernel that
            does not compile, a compiler that is missing. They cost nobody else anything:
            :meth:`build` raises for them, and whoever places takes the next best.
        """
        return {}

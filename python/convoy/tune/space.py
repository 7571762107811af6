"""The search space of a workload: the candidates that backends propose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..backends.base import Backend
from ..errors import LibraryMissing
from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.workload import Workload
from ..records.record import CandidateKey, candidate_key


@dataclass(frozen=True)
class Space:
    """The candidates of one workload.

    Attributes:
        workload: The workload.
        candidates: No two of one key; each backend's in its own order of preference.
        declines: Backends that do not take the workload, and why.
    """

    workload: Workload
    candidates: tuple[Candidate, ...]
    declines: tuple[Decline, ...] = ()

    def __post_init__(self) -> None:
        keys = [candidate_key(candidate) for candidate in self.candidates]
        assert len(set(keys)) == len(keys), "candidates of one key"

    def extended(self, others: Iterable[Candidate]) -> Space:
        """Return the space with more candidates at the end, without duplicates."""
        merged: dict[CandidateKey, Candidate] = {candidate_key(c): c for c in self.candidates}
        for other in others:
            merged.setdefault(candidate_key(other), other)
        return Space(self.workload, tuple(merged.values()), self.declines)


def propose(
    workload: Workload,
    backends: Sequence[Backend],
    device: Device,
    keep: Callable[[Candidate], bool] = lambda candidate: True,
) -> Space:
    """Ask all backends for candidates, of which ``keep`` filters some.

    A library that is not installed counts as a decline.
    """
    candidates: list[Candidate] = []
    declines: list[Decline] = []
    for backend in backends:
        try:
            answer = backend.propose(workload, device)
        except LibraryMissing as err:
            answer = Decline(backend.name, str(err))
        if isinstance(answer, Decline):
            declines.append(answer)
        else:
            candidates += filter(keep, answer)
    return Space(workload, (), tuple(declines)).extended(candidates)

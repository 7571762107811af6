"""Measured costs: a candidate that cannot be built fails alone, and whose fault it is counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from convoy.backends.base import Backend, Binary
from convoy.cost.measured import MeasuredCost
from convoy.errors import CacheUnwritable, CompileFailed, ConvoyError, LibraryMissing
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload

from ..helpers.unrecorded import Unrecorded

WORKLOAD = Workload("fprop", 8, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1))


class Broken(Backend):
    name = "broken"

    def __init__(self, error: ConvoyError) -> None:
        self._error = error

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate]:
        return [Candidate(self.name, "kernel")]

    def prepare(
        self, jobs: Sequence[tuple[Workload, Candidate]], device: Device
    ) -> dict[Candidate, ConvoyError]:
        return {candidate: self._error for _, candidate in jobs}

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise self._error


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (CompileFailed("words of nvcc"), 1),
        (LibraryMissing("no nvcc 13"), 0),
        (CacheUnwritable("full disk"), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_recorded_unless_it_is_the_machines(error: ConvoyError, recorded: int) -> None:
    saved: list[Measurement] = []
    backend = Broken(error)
    candidates = backend.propose(WORKLOAD, Device())
    costs = MeasuredCost([backend], Device(), Unrecorded(), lambda w, c, found: saved.append(found))
    (found,) = costs.measurements(WORKLOAD, candidates)
    assert found is not None and str(error) in found.failure
    assert len(saved) == recorded

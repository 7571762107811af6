"""Cost model that reads records."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from itertools import chain

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment
from ..records.record import Record
from ..records.store import RecordStore
from .host import HostTimes
from .local_measurements import LocalMeasurements
from .model import CostModel
from .nearest import Neighbours
from .usual_host_times import usual_times


class RecordedCost(CostModel):
    """Measurements from a record store: strict matches of the environment first, then loose ones.

    Host times from other hosts are rescaled by the ratios of ``hosts``; without it they are used as
    recorded, and records of other workloads are not read. With a ``device``, candidates without a
    record are estimated from those of similar workloads (:mod:`.nearest`).
    """

    source = "recorded"
    measures = False
    thorough = False

    def __init__(
        self,
        store: RecordStore,
        environment: Environment,
        hosts: HostTimes | None = None,
        device: Device | None = None,
    ) -> None:
        self._store, self._environment, self._device = store, environment, device
        self.estimating = device is not None
        self._hosts = hosts

    @functools.cached_property
    def _neighbours(self) -> Neighbours | None:
        if self._device is None:
            return None
        return Neighbours(self._store.recorded(), self._store.samples, self._device)

    def calibrate(
        self, workloads: Sequence[Workload], backends: Collection[str], here: LocalMeasurements
    ) -> None:
        """Rescale host times of other hosts to this CPU, by measuring some candidates ``here``."""
        if self._hosts is None:
            return
        records = (record for w in workloads for record in self._found(w).values())
        known = (r for r in records if r.candidate.backend in backends)
        self._hosts.calibrate(known, here.time_here, here.is_ready, here.prepare)

    def _found(self, workload: Workload) -> dict[tuple[str, str], Record]:
        if self._hosts is not None and not self._hosts.usual:
            samples = map(self._store.samples, self._store.recorded())
            self._hosts.usual = usual_times(chain.from_iterable(samples))
        records = self._store.lookup(workload, self._environment)
        return {(r.candidate.backend, r.candidate.kernel): r for r in records}

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        found = self._found(workload)
        records = [found.get((c.backend, c.kernel)) for c in candidates]
        here = _as_recorded if self._hosts is None else self._hosts.measurement
        return [here(record) if record else None for record in records]

    def estimates(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> Sequence[Measurement | None]:
        if self._neighbours is None:
            return super().estimates(workload, candidates)
        return self._neighbours.estimates(workload, candidates)

    def candidates(self, workload: Workload) -> list[Candidate]:
        return [record.candidate for record in self._found(workload).values()]


def _as_recorded(record: Record) -> Measurement:
    return record.measurement

"""Measurements that count on this machine: those of its records, and those that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..backends.base import Backend
from ..errors import CacheUnwritable, ConvoyError, LibraryMissing
from ..ir.candidate import Candidate
from ..ir.defaults import SAMPLES_MS
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..progress import step

#: Receives each new measurement.
Save = Callable[[Workload, Candidate, Measurement], None]


class LocalMeasurements:
    """Measurements by workload and candidate; builds and measures candidates on the GPU.

    Args:
        backends: Backends by name.
        save: Called with each new measurement, failures among them.
        samples_ms: Time that the samples of one measurement may take, about.

    Attributes:
        taken: Number of candidates measured so far.
        expected: Estimate of that number at the end, for the progress bar.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        device: Device,
        save: Save | None = None,
        samples_ms: float = SAMPLES_MS,
    ) -> None:
        self._backends, self._device, self._save = backends, device, save
        self._samples_ms = samples_ms
        self._known: dict[tuple[str, str, str], Measurement] = {}
        self._best: dict[str, float] = {}  # least kernel_us by workload
        self._ready: dict[tuple[str, str], bool] = {}
        self.taken, self.expected = 0, 0

    def find(self, workload: Workload, candidate: Candidate) -> Measurement | None:
        """Return the measurement of a candidate; None for an unknown one."""
        return self._known.get(_key(workload, candidate))

    def best_us(self, workload: Workload) -> float | None:
        """Return the shortest time of a kernel of the workload."""
        return self._best.get(workload.key)

    def add(self, workload: Workload, candidate: Candidate, found: Measurement) -> None:
        """Add a measurement, unless there is one of the candidate."""
        self._known.setdefault(_key(workload, candidate), found)
        if found.ok and found.kernel_us is not None:
            best = self._best.get(workload.key, math.inf)
            self._best[workload.key] = min(found.kernel_us, best)

    def measure(self, workload: Workload, candidate: Candidate) -> Measurement:
        """Measure a candidate once and save the result; a failure is a measurement as well."""
        known = self.find(workload, candidate)
        return self.measure_again(workload, candidate) if known is None else known

    def measure_again(self, workload: Workload, candidate: Candidate) -> Measurement:
        """Measure a candidate, save the result, and replace the known one by it."""
        from ..measure import protocol

        self.taken += 1
        step(f"{workload.key} {candidate.kernel}", self.taken, max(self.expected, self.taken))
        best, save = self.best_us(workload), self._save
        try:
            binary = self._backends[candidate.backend].build(workload, candidate, self._device)
            found = protocol.measure(
                workload, candidate, binary, self._device,
                best_us=best, budget_ms=self._samples_ms,
            )  # fmt: skip
        except (LibraryMissing, CacheUnwritable) as err:
            found, save = Measurement(failure=str(err)), None  # this machine's failure
        except ConvoyError as err:
            found = Measurement(failure=str(err))
        self._known.pop(_key(workload, candidate), None)
        self.add(workload, candidate, found)
        if save:
            save(workload, candidate, found)
        return found

    def time_here(self, workload: Workload, candidate: Candidate) -> Measurement:
        """Measure a recorded candidate to compare this machine with that of the record; the result
        is neither kept nor saved."""
        from ..measure import protocol

        backend = self._backends[candidate.backend]
        binary = backend.build(workload, candidate, self._device)
        return protocol.measure(workload, candidate, binary, self._device, cold=False)

    def prepare(self, pairs: Sequence[tuple[Workload, Candidate]]) -> dict[Candidate, ConvoyError]:
        """Have each backend build its candidates ahead of time; return the errors."""
        refused: dict[Candidate, ConvoyError] = {}
        by_backend: dict[str, list[tuple[Workload, Candidate]]] = {}
        for workload, candidate in pairs:
            by_backend.setdefault(candidate.backend, []).append((workload, candidate))
        for name, own in by_backend.items():
            refused |= self._backends[name].prepare(own, self._device)
        return refused

    def is_ready(self, candidate: Candidate) -> bool:
        """Return whether a candidate needs no compiler run."""
        key = candidate.backend, candidate.config
        if key not in self._ready:
            try:
                self._ready[key] = self._backends[candidate.backend].is_ready(candidate)
            except LibraryMissing:
                self._ready[key] = False
        return self._ready[key]


def _key(workload: Workload, candidate: Candidate) -> tuple[str, str, str]:
    return workload.key, candidate.backend, candidate.kernel

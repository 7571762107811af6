"""Measurements taken here and now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..backends.base import Backend
from ..errors import CacheUnwritable, ConvoyError, LibraryMissing
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from .model import CostModel, Progress
from .recorded import RecordedCost


class MeasuredCost(CostModel):
    """Measures candidates on the GPU that is present; what the records hold is not measured again.

    ``most`` bounds how many candidates of one backend are measured for a workload, recorded ones
    counted: its best guesses, by priority. ``proceed`` is asked before each measurement; once it
    says no, nothing more is measured. Nothing is known of what was left out.
    """

    source = "measured"
    free = False

    def __init__(
        self,
        backends: Sequence[Backend],
        device: Device,
        recorded: RecordedCost | None = None,
        save: Callable[[Workload, Candidate, Measurement], None] | None = None,
        progress: Progress | None = None,
        most: int | None = None,
        proceed: Callable[[], bool] | None = None,
    ) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._most, self._proceed = most, proceed or (lambda: True)
        self._device, self._recorded, self._save = device, recorded, save
        self._progress = progress
        self._done: dict[tuple[str, str, str], Measurement] = {}
        self._ready: dict[tuple[str, str], bool] = {}
        self._seen, self._expected = 0, 0

    def _known(self, workload: Workload, candidates: Sequence[Candidate]) -> None:
        if self._recorded is None:
            return
        for candidate, measurement in zip(
            candidates, self._recorded.measurements(workload, candidates), strict=True
        ):
            if measurement is not None:
                self._done.setdefault((workload.key, *_id(candidate)), measurement)

    def candidates(self, workload: Workload) -> list[Candidate]:
        return self._recorded.candidates(workload) if self._recorded else []

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        wanted: list[tuple[Workload, Candidate]] = []
        if self._recorded is not None:
            workloads = [workload for workload, _ in jobs]
            self._recorded.calibrate(
                workloads, list(self._backends), self._again, self._is_ready, self._prepare
            )
        for workload, candidates in jobs:
            self._known(workload, candidates)
            for candidate in self._wanted(workload, candidates):
                if (workload.key, *_id(candidate)) not in self._done:
                    wanted.append((workload, candidate))
        self._expected = len(wanted)
        self._prepare(wanted)

    def _prepare(self, pairs: Sequence[tuple[Workload, Candidate]]) -> None:
        """Have backends build ahead, each all of its own at once."""
        by_backend: dict[str, list[tuple[Workload, Candidate]]] = {}
        for workload, candidate in pairs:
            by_backend.setdefault(candidate.backend, []).append((workload, candidate))
        for name, own in by_backend.items():
            self._backends[name].prepare(own, self._device)

    def _is_ready(self, candidate: Candidate) -> bool:
        key = candidate.backend, candidate.config
        if key not in self._ready:
            try:
                self._ready[key] = self._backends[candidate.backend].is_ready(candidate)
            except LibraryMissing:
                self._ready[key] = False
        return self._ready[key]

    def _again(self, workload: Workload, candidate: Candidate) -> Measurement:
        """What a recorded candidate takes here."""
        from ..measure import protocol

        backend = self._backends[candidate.backend]
        binary = backend.build(workload, candidate, self._device)
        return protocol.measure(workload, candidate, binary, self._device, cold=False)

    def _wanted(self, workload: Workload, candidates: Sequence[Candidate]) -> set[Candidate]:
        """What to measure: all, or of each backend the first in its order."""
        if self._most is None:
            return set(candidates)
        wanted: set[Candidate] = set()
        for name in {candidate.backend for candidate in candidates}:
            own = [c for c in candidates if c.backend == name]
            known = sum((workload.key, *_id(c)) in self._done for c in own)
            unknown = [c for c in own if (workload.key, *_id(c)) not in self._done]
            unknown.sort(key=lambda c: c.priority)
            wanted.update(unknown[: max(0, self._most - known)])
        return wanted

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        self._known(workload, candidates)
        wanted = self._wanted(workload, candidates)
        best: float | None = None
        results: list[Measurement | None] = []
        for candidate in candidates:
            key = (workload.key, *_id(candidate))
            if key not in self._done and candidate in wanted and self._proceed():
                self._done[key] = self._measured(workload, candidate, best)
            measurement = self._done.get(key)
            if measurement is not None and measurement.ok and measurement.kernel_us is not None:
                best = measurement.kernel_us if best is None else min(best, measurement.kernel_us)
            results.append(measurement)
        return results

    def _measured(
        self, workload: Workload, candidate: Candidate, best_us: float | None
    ) -> Measurement:
        """Measure one candidate and save the result; a failure is a measurement as well."""
        from ..measure import protocol

        self._seen += 1
        if self._progress:
            label = f"{workload.key} {candidate.kernel}"
            self._progress(label, self._seen, max(self._expected, self._seen))
        save = self._save
        try:
            binary = self._backends[candidate.backend].build(workload, candidate, self._device)
            found = protocol.measure(workload, candidate, binary, self._device, best_us=best_us)
        except (LibraryMissing, CacheUnwritable) as err:
            found, save = Measurement(failure=str(err)), None  # this machine's failure
        except ConvoyError as err:
            found = Measurement(failure=str(err))
        if save:
            save(workload, candidate, found)
        return found


def _id(candidate: Candidate) -> tuple[str, str]:
    return candidate.backend, candidate.kernel

"""Where the figures of candidates come from, behind one base class."""

from __future__ import annotations

import abc
import random
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..backends.base import Backend
from ..errors import CacheUnwritable, ConvoyError, LibraryMissing
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from .host import Again, HostTimes, Prepare, Ready, usual_times

Progress = Callable[[str, int, int], None]


class CostModel(abc.ABC):
    """Gives the figures of a workload's candidates; the placer asks nothing else of it."""

    source = "measured"
    #: Whether it finds figures for any candidate, or only for those in :meth:`candidates`.
    measures = True
    #: Whether asking it takes no time on a GPU.
    free = True

    @abc.abstractmethod
    def figures(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        """A Measurement for each candidate, None where nothing is known of it."""

    def candidates(self, workload: Workload) -> list[Candidate]:
        """Candidates known from elsewhere (records), beside those that backends propose."""
        return []

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        """Told of all the work to come, so that builds can run in parallel. Optional."""

    def bring_here(
        self,
        workloads: Sequence[Workload],
        backends: Collection[str],
        again: Again,
        ready: Ready = lambda _: True,
        prepare: Prepare = lambda _: None,
    ) -> None:
        """Asked to give host times as they are on this host, where it has some of other hosts
        (see HostTimes.calibrate). Optional."""


class RecordedCost(CostModel):
    """Figures from a record store, strict on the environment first, then loose; host times of
    other hosts by the ratios of ``hosts``."""

    source = "recorded"
    measures = False

    def __init__(self, store: Any, environment: Any, hosts: HostTimes | None = None) -> None:
        self._store, self._environment = store, environment
        self.hosts = hosts or HostTimes()
        self._asked = False

    def bring_here(
        self,
        workloads: Sequence[Workload],
        backends: Collection[str],
        again: Again,
        ready: Ready = lambda _: True,
        prepare: Prepare = lambda _: None,
    ) -> None:
        records = (record for w in workloads for record in self._found(w).values())
        known = (r for r in records if r.candidate.backend in backends)
        self.hosts.calibrate(known, again, ready, prepare)

    def _found(self, workload: Workload) -> dict[tuple[str, str], Any]:
        if not self._asked:
            self._asked = True
            self.hosts.usual = usual_times(self._store)
        records = self._store.lookup(workload, self._environment)
        return {(r.candidate.backend, r.candidate.kernel): r for r in records}

    def figures(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        found = self._found(workload)
        records = [found.get((c.backend, c.kernel)) for c in candidates]
        return [self.hosts.figure(record) if record else None for record in records]

    def candidates(self, workload: Workload) -> list[Candidate]:
        return [record.candidate for record in self._found(workload).values()]


class MeasuredCost(CostModel):
    """Figures measured here and now; what a store already holds is not measured again.

    ``most`` bounds how many candidates of one backend are measured for a workload, those with
    figures in the store counted: its best guesses, by priority. ``proceed`` is asked before each
    measurement; once it says no, nothing more is measured. Nothing is known of what was left out.
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
        for candidate, figure in zip(
            candidates, self._recorded.figures(workload, candidates), strict=True
        ):
            if figure is not None:
                self._done.setdefault((workload.key, *_id(candidate)), figure)

    def candidates(self, workload: Workload) -> list[Candidate]:
        return self._recorded.candidates(workload) if self._recorded else []

    def prefetch(self, jobs: Sequence[tuple[Workload, Sequence[Candidate]]]) -> None:
        wanted: list[tuple[Workload, Candidate]] = []
        if self._recorded is not None:
            workloads = [workload for workload, _ in jobs]
            self._recorded.bring_here(
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

    def figures(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        from ..measure import protocol

        self._known(workload, candidates)
        wanted = self._wanted(workload, candidates)
        best: float | None = None
        results: list[Measurement | None] = []
        for candidate in candidates:
            key = (workload.key, *_id(candidate))
            if key not in self._done and (candidate not in wanted or not self._proceed()):
                results.append(None)
                continue
            if key not in self._done:
                self._seen += 1
                if self._progress:
                    label = f"{workload.key} {candidate.kernel}"
                    self._progress(label, self._seen, max(self._expected, self._seen))
                save = self._save
                try:
                    binary = self._backends[candidate.backend].build(
                        workload, candidate, self._device
                    )
                    figure = protocol.measure(
                        workload, candidate, binary, self._device, best_us=best
                    )
                except (LibraryMissing, CacheUnwritable) as err:
                    figure, save = Measurement(failure=str(err)), None  # this machine's failure
                except ConvoyError as err:
                    figure = Measurement(failure=str(err))
                self._done[key] = figure
                if save:
                    save(workload, candidate, figure)
            figure = self._done[key]
            if figure.ok and figure.kernel_us is not None:
                best = figure.kernel_us if best is None else min(best, figure.kernel_us)
            results.append(figure)
        return results


class RandomCost(CostModel):
    """Reproducible made-up figures: everything behind the placer is tested without a GPU."""

    source = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def figures(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        results: list[Measurement | None] = []
        for candidate in candidates:
            text = f"{self._seed}|{workload.key}|{candidate.key}"
            rng = random.Random(zlib.crc32(text.encode()))
            kernel, host = rng.uniform(2, 50), rng.uniform(2, 12)
            results.append(
                Measurement(
                    kernel_us=kernel,
                    kernel_spread_us=0.01 * kernel,
                    enqueue_us=host,
                    enqueue_spread_us=0.1,
                    e2e_us=max(kernel, host) + rng.uniform(4, 15),
                    e2e_spread_us=0.3,
                    samples=1,
                )
            )
        return results


def _id(candidate: Candidate) -> tuple[str, str]:
    return candidate.backend, candidate.kernel

"""The loop: choose, measure, record, learn, until the budget is spent."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidOption
from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.record import CandidateKey, Record, candidate_key
from ..records.store import RecordStore
from .executor import Executor
from .job import Job, Result
from .search import Search
from .space import Space
from .task import Task

#: Asking cuDNN's heuristics takes up to half a second for a workload.
PROPOSING_THREADS = 8


@dataclass(frozen=True)
class Budget:
    """When to stop. None means: no limit.

    trials        candidates of each workload, those with known figures among them
    seconds       of the whole run
    measurements  of the whole run
    patience      candidates of a workload without an improvement of 1%
    batch         candidates of each workload chosen at a time, between which the search learns
    """

    trials: int | None = 16
    seconds: float | None = None
    measurements: int | None = None
    patience: int | None = None
    batch: int = 4

    def __post_init__(self) -> None:
        for name in ("trials", "seconds", "measurements", "patience", "batch"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidOption(f"{name} = {value}", "a positive number")


@dataclass
class Outcome:
    """What a run did. ``best`` holds the fastest known candidate of each workload."""

    measured: int = 0
    failed: int = 0
    reused: int = 0
    seconds: float = 0.0
    stopped: str = ""
    best: dict[Workload, tuple[Candidate, Measurement]] = field(default_factory=dict)


class Observer:
    """Told of what happens; the methods may be left as they are."""

    def begin(self, workloads: int, trials: int | None) -> None: ...
    def proposed(self, space: Space) -> None: ...
    def result(self, result: Result, best_us: float | None) -> None: ...
    def reused(self, workload: Workload, candidate: Candidate) -> None: ...
    def done(self, workload: Workload) -> None: ...


class Tuner:
    """Tunes workloads with one executor into one record store.

    ``propose`` gives a workload's space, to which the ``neighbours`` of each new best candidate are
    added; ``kernel`` names what must be compiled for a candidate. What the store holds strictly for
    the executor's environment is not measured again; of ``backends`` alone, where these are given:
    a run for one library is not at its end because of what another one has. Each result is recorded
    as it comes.
    """

    def __init__(
        self,
        executor: Executor,
        search: Search,
        store: RecordStore,
        propose: Callable[[Workload], Space],
        kernel: Callable[[Candidate], str] = lambda candidate: "",
        neighbours: Callable[[Workload, Candidate], Iterable[Candidate]] = lambda *_: (),
        observer: Observer | None = None,
        backends: Collection[str] | None = None,
    ) -> None:
        self._executor, self._search, self._store = executor, search, store
        self._propose, self._kernel, self._neighbours = propose, kernel, neighbours
        self._observer, self._backends = observer or Observer(), backends
        self._lock = threading.Lock()

    def complete(self, workloads: Iterable[Workload], budget: Budget) -> list[Workload]:
        """The workloads that records hold enough of."""
        if budget.trials is None:
            return []
        return [w for w in workloads if len(self._known(w)) >= budget.trials]

    def known(self, workloads: Iterable[Workload]) -> dict[str, int]:
        """How many candidates of each workload have figures, by its key."""
        return {workload.key: len(self._known(workload)) for workload in workloads}

    def tune(
        self,
        workloads: Sequence[Workload],
        budget: Budget = Budget(),
        complete: Collection[str] | None = None,
    ) -> Outcome:
        """Measure until the budget is spent or nothing is left. Workloads whose key is in
        ``complete`` (default: those of :meth:`complete`) are left alone.

        Raises MeasuringFailed where the GPU cannot be used at all, CacheUnwritable where records
        or kernels cannot be written, LibraryMissing without nvcc for kernels that need it.
        """
        started = time.monotonic()
        outcome = Outcome()
        workloads = list(dict.fromkeys(workloads))
        self._observer.begin(len(workloads), budget.trials)
        if complete is None:
            complete = {workload.key for workload in self.complete(workloads, budget)}
        tasks = self._open(workloads, complete, outcome)
        while tasks and not outcome.stopped:
            tasks = self._round(tasks, budget, outcome, started)
        outcome.best = {w: best for w in workloads if (best := self._best(w)) is not None}
        outcome.seconds = time.monotonic() - started
        return outcome

    def _open(
        self, workloads: Sequence[Workload], complete: Collection[str], outcome: Outcome
    ) -> list[Task]:
        """Tasks of the workloads that are not complete."""
        known = {workload: self._known(workload) for workload in workloads}
        open_ones = []
        for workload, figures in known.items():
            if workload.key in complete:
                outcome.reused += len(figures)
                self._observer.done(workload)
            else:
                open_ones.append(workload)
        tasks: list[Task] = []
        if not open_ones:
            return tasks
        self._executor.start()
        with concurrent.futures.ThreadPoolExecutor(PROPOSING_THREADS + 1, "propose") as pool:
            begun = pool.submit(self._search.begin)
            for space in pool.map(self._propose, open_ones):
                self._observer.proposed(space)
                tasks.append(Task(space, known[space.workload]))
            begun.result()
        return tasks

    def _recorded(self, workload: Workload) -> list[Record]:
        records = self._store.lookup(workload, self._executor.environment, "strict")
        used = self._backends
        return [r for r in records if used is None or r.candidate.backend in used]

    def _known(self, workload: Workload) -> dict[CandidateKey, Measurement]:
        return {candidate_key(r.candidate): r.measurement for r in self._recorded(workload)}

    def _best(self, workload: Workload) -> tuple[Candidate, Measurement] | None:
        records = self._recorded(workload)
        timed = [(r.candidate, r.measurement) for r in records if r.measurement.ok]
        return min(timed, key=lambda item: item[1].kernel_us or 0.0, default=None)

    def _round(
        self, tasks: list[Task], budget: Budget, outcome: Outcome, started: float
    ) -> list[Task]:
        """One batch of each task; returns the tasks that go on."""
        picks = self._search.pick(tasks, budget.batch)
        jobs: list[Job] = []
        chosen: list[list[Candidate]] = []
        for task, picked in zip(tasks, picks, strict=True):
            room = budget.batch if budget.trials is None else budget.trials - len(task.results)
            chosen.append(picked[:room])
            jobs += self._jobs(task, picked[:room], outcome)
        # What needs no compiler first, so that the GPU has work while the cores compile.
        jobs.sort(key=lambda job: any(map(self._kernel, job.candidates)))
        self._executor.announce(jobs)
        by_workload = {task.workload: task for task in tasks}
        self._run(jobs, by_workload, budget, outcome, started)
        going_on = []
        for task, picked in zip(tasks, chosen, strict=True):
            task.finish_round(len(picked))
            spent = budget.trials is not None and len(task.results) >= budget.trials
            tired = budget.patience is not None and task.since_improvement >= budget.patience
            if not (spent or tired):
                self._widen(task)
            ended = not picked or not task.remaining()
            if spent or tired or ended:
                self._observer.done(task.workload)
            else:
                going_on.append(task)
        return going_on

    def _widen(self, task: Task) -> None:
        """Add what lies around the best candidate, once for each."""
        best = task.best()
        if best is not None and candidate_key(best) not in task.widened:
            task.widened.add(candidate_key(best))
            task.space = task.space.extended(self._neighbours(task.workload, best))

    def _jobs(self, task: Task, picked: Sequence[Candidate], outcome: Outcome) -> list[Job]:
        """Jobs for what is not known, apart for candidates that wait for a compiler."""
        ready: list[Candidate] = []
        waiting: list[Candidate] = []
        for candidate in picked:
            figures = task.known(candidate)
            if figures is not None:
                task.add(candidate, figures)
                outcome.reused += 1
                self._observer.reused(task.workload, candidate)
            elif self._kernel(candidate):
                waiting.append(candidate)
            else:
                ready.append(candidate)
        groups = [tuple(group) for group in (ready, waiting) if group]
        return [Job(task.workload, group, task.best_us) for group in groups]

    def _run(
        self,
        jobs: Sequence[Job],
        tasks: dict[Workload, Task],
        budget: Budget,
        outcome: Outcome,
        started: float,
    ) -> None:
        """Run the jobs of a round, as many at once as the executor takes."""
        broken = threading.Event()

        def stop() -> bool:
            if broken.is_set() or outcome.stopped:
                return True
            if budget.seconds is not None and time.monotonic() - started > budget.seconds:
                outcome.stopped = f"{budget.seconds:g} seconds are over"
            elif budget.measurements is not None and outcome.measured >= budget.measurements:
                outcome.stopped = f"{budget.measurements} measurements are done"
            return bool(outcome.stopped)

        def one(job: Job) -> None:
            if stop():
                return
            for result in self._executor.run(job, stop):
                self._take(result, tasks[result.workload], outcome)

        with concurrent.futures.ThreadPoolExecutor(self._executor.slots, "job") as pool:
            futures = [pool.submit(one, job) for job in jobs]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                broken.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _take(self, result: Result, task: Task, outcome: Outcome) -> None:
        """Record a result before anything else happens with it."""
        record = Record(result.workload, result.candidate, result.measurement, result.environment)
        with self._lock:
            self._store.append(record)
            task.add(result.candidate, result.measurement)
            outcome.measured += 1
            outcome.failed += not result.measurement.ok
            times = [m.kernel_us for _, m in task.results.values() if m.ok and m.kernel_us]
            self._observer.result(result, min(times, default=None))

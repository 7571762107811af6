"""The tuning loop: choose, measure, record, learn, until the budget is spent."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.offer import Offer
from ..ir.workload import Workload
from ..records.record import CandidateKey, Record, candidate_key
from ..records.store import RecordStore
from .budget import DEFAULT_BUDGET, Budget
from .executor import Executor
from .job import Job, Result
from .observer import Observer, Outcome
from .search import Search
from .space import Space
from .task import Task

#: cuDNN's heuristics take up to half a second for a workload.
PROPOSING_THREADS = 8


class Tuner:
    """Tunes workloads with one executor into one record store.

    Args:
        executor: Measures.
        search: Chooses the candidates of each round.
        store: Measurements that it holds strictly for the executor's environment are not repeated;
            every result is appended as it comes.
        propose: Returns the search space of a workload.
        kernel: Names the library to compile for a candidate; empty for none.
        neighbours: Returns candidates around a new best one, which join the space.
        observer: Callbacks.
        backends: Only records of these count: a run for one library is not complete because of
            another one's records. None: all.
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
        """Return the workloads with at least as many recorded measurements as trials."""
        if budget.trials is None:
            return []
        return [w for w in workloads if len(self._known(w)) >= budget.trials]

    def known(self, workloads: Iterable[Workload]) -> dict[str, int]:
        """Return the number of measured candidates of each workload, by its key."""
        return {workload.key: len(self._known(workload)) for workload in workloads}

    def tune(
        self,
        workloads: Sequence[Workload],
        budget: Budget = DEFAULT_BUDGET,
        complete: Collection[str] | None = None,
    ) -> Outcome:
        """Measure until the budget is spent or no candidate is left.

        Args:
            workloads: Duplicates count once.
            budget: Limits of the run.
            complete: Keys of workloads to skip; default: those of :meth:`complete`.

        Raises:
            MeasuringFailed: The GPU cannot be used at all.
            CacheUnwritable: Records or kernels cannot be written.
            LibraryMissing: Kernels need nvcc, and there is none.
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
        """Return tasks of the workloads that are not complete."""
        incomplete = []
        for workload in workloads:
            if workload.key in complete:
                outcome.reused += len(self._known(workload))
                self._observer.done(workload)
            else:
                incomplete.append(workload)
        tasks: list[Task] = []
        if not incomplete:
            return tasks
        self._executor.start()
        with concurrent.futures.ThreadPoolExecutor(PROPOSING_THREADS + 1, "propose") as pool:
            begun = pool.submit(self._search.begin)
            for space in pool.map(self._propose, incomplete):
                self._observer.proposed(space)
                tasks.append(Task(space, self._known(space.workload)))
            begun.result()
        return tasks

    def _recorded(self, workload: Workload) -> list[Record]:
        records = self._store.lookup(workload, self._executor.environment, "strict")
        used = self._backends
        return [r for r in records if used is None or r.candidate.backend in used]

    def _known(self, workload: Workload) -> dict[CandidateKey, Measurement]:
        return {candidate_key(r.candidate): r.measurement for r in self._recorded(workload)}

    def _best(self, workload: Workload) -> Offer | None:
        records = self._recorded(workload)
        offers = [Offer(r.candidate, r.measurement) for r in records if r.measurement.ok]
        return min(offers, key=lambda offer: offer.measurement.kernel_us or 0.0, default=None)

    def _round(
        self, tasks: Sequence[Task], budget: Budget, outcome: Outcome, started: float
    ) -> list[Task]:
        """Run one batch of each task; return the tasks that go on."""
        jobs: list[Job] = []
        trials: list[int] = []
        for task, picked in zip(tasks, self._search.pick(tasks, budget.batch), strict=True):
            left = budget.batch if budget.trials is None else budget.trials - len(task.results)
            trials.append(len(picked[:left]))
            jobs += self._jobs(task, picked[:left], outcome)
        # Candidates without a compilation go first: the GPU has work while the cores compile.
        jobs.sort(key=lambda job: any(map(self._kernel, job.candidates)))
        self._executor.announce(jobs)
        self._run(jobs, {task.workload: task for task in tasks}, budget, outcome, started)
        for task, count in zip(tasks, trials, strict=True):
            task.finish_round(count)
        return [
            task
            for task, count in zip(tasks, trials, strict=True)
            if self._goes_on(task, count, budget)
        ]

    def _goes_on(self, task: Task, trials: int, budget: Budget) -> bool:
        """Widen the space of a task that continues after a round of this many trials."""
        if not task.exhausted(budget):
            best = task.best()
            if best is not None and candidate_key(best) not in task.widened:
                task.widen(self._neighbours(task.workload, best), best)
            if trials and task.remaining():
                return True
        self._observer.done(task.workload)
        return False

    def _jobs(self, task: Task, picked: Sequence[Candidate], outcome: Outcome) -> list[Job]:
        """Return jobs for candidates that are not known, apart for those to be compiled first."""
        groups: dict[bool, list[Candidate]] = {False: [], True: []}
        for candidate in picked:
            measurement = task.known(candidate)
            if measurement is not None:
                task.add(candidate, measurement)
                outcome.reused += 1
                self._observer.reused(task.workload, candidate)
            else:
                groups[bool(self._kernel(candidate))].append(candidate)
        return [Job(task.workload, tuple(g), task.best_us) for g in groups.values() if g]

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
            if not outcome.stopped:
                outcome.stopped = budget.exhausted(time.monotonic() - started, outcome.measured)
            return broken.is_set() or bool(outcome.stopped)

        def run(job: Job) -> None:
            if stop():
                return
            for result in self._executor.run(job, stop):
                self._record(result, tasks[result.workload], outcome)

        with concurrent.futures.ThreadPoolExecutor(self._executor.slots, "job") as pool:
            futures = [pool.submit(run, job) for job in jobs]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                broken.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _record(self, result: Result, task: Task, outcome: Outcome) -> None:
        """Append a result to the records before anything else happens with it."""
        record = Record(result.workload, result.candidate, result.measurement, result.environment)
        with self._lock:
            self._store.append(record)
            task.add(result.candidate, result.measurement)
            outcome.measured += 1
            outcome.failed += not result.measurement.ok
            best_us = min((time for time, _ in task.times()), default=None)
            self._observer.result(result, best_us)

"""Where jobs run: behind one base class the GPUs of this machine and those of others."""

from __future__ import annotations

import abc
import concurrent.futures
import functools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from ..backends.kernels.compile import default_jobs
from ..errors import CompileFailed, MeasuringFailed
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..measure.gpu import find_gpus
from ..records.environment import Environment
from .job import Job, Result
from .measurer import Spec
from .process import TIMEOUT_S, MeasuringProcess

#: Measuring processes of a GPU: what one does on the host takes about as long as what it does on
#: the GPU.
PROCESSES = 3


class Executor(abc.ABC):
    """Runs jobs. ``slots`` is how many jobs it can have under way at once, those that wait for
    their kernels among them; ``device`` and ``environment`` are what it measures on."""

    slots: int
    device: Device
    environment: Environment

    @abc.abstractmethod
    def run(self, job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Result]:
        """Results of a job as they come, for use by ``slots`` threads at once. Ends early once
        ``stop()`` is true. Raises MeasuringFailed where nothing can be measured."""

    def start(self) -> None:
        """Told that there will be jobs, so that processes start meanwhile. Optional."""

    def announce(self, jobs: Sequence[Job]) -> None:
        """Told of jobs that will be run, so that their kernels are compiled while others are
        measured. Optional."""

    def close(self) -> None:
        """End all processes."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalExecutor(Executor):
    """The GPUs of this machine, while its cores compile.

    ``gpus`` are values for CUDA_VISIBLE_DEVICES. Each GPU has ``processes`` measuring processes,
    which take turns: one has the GPU to itself while others build plans and compute references.
    ``compile_jobs`` is the number of compilers at once. Processes start when they are first
    needed. Raises NoGpu.
    """

    def __init__(
        self,
        spec: Spec,
        gpus: Sequence[str | None] = (None,),
        compile_jobs: int | None = None,
        timeout_s: float = TIMEOUT_S,
        processes: int = PROCESSES,
    ) -> None:
        self._measurer = spec.make()
        self._turns = {gpu: threading.Lock() for gpu in gpus}
        self._processes = [
            MeasuringProcess(spec, gpu, timeout_s) for _ in range(processes) for gpu in gpus
        ]
        self._free: queue.SimpleQueue[MeasuringProcess] = queue.SimpleQueue()
        compile_jobs = compile_jobs or default_jobs()
        self._compilers = concurrent.futures.ThreadPoolExecutor(compile_jobs, "compile")
        self._compiled: dict[str, concurrent.futures.Future[None]] = {}
        self._lock = threading.Lock()
        self._starting: set[MeasuringProcess] = set()
        self._closed = threading.Event()
        self.slots = len(self._processes) + 2 * compile_jobs
        # Asked here, so that a run which finds everything in records starts no process.
        self.environment = self._measurer.environment()
        for process in self._processes:
            self._free.put(process)

    @functools.cached_property
    def device(self) -> Device:  # type: ignore[override]
        return self._measurer.describe()[0]

    def run(self, job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Result]:
        compiling = [self._compile(job.workload, candidate) for candidate in job.candidates]
        failures = [_failure(future) for future in compiling]
        if stop():
            return
        process = self._free.get()
        try:
            best = job.best_us
            for candidate, failure in zip(job.candidates, failures, strict=True):
                if stop():
                    return
                figures, seconds = Measurement(failure=failure), 0.0
                if not failure:
                    turn = self._turns[process.gpu]
                    figures, seconds = process.measure(job.workload, candidate, best, turn)
                if figures.ok and figures.kernel_us is not None:
                    best = figures.kernel_us if best is None else min(best, figures.kernel_us)
                environment = self._measurer.narrow(process.describe()[1], candidate)
                yield Result(job.workload, candidate, figures, environment, seconds)
        finally:
            self._free.put(process)

    def start(self) -> None:
        for _ in self._processes:
            threading.Thread(target=self._start_one, name="start", daemon=True).start()

    def _start_one(self) -> None:
        process = self._free.get()
        with self._lock:
            if self._closed.is_set():
                return
            self._starting.add(process)
        try:
            process.describe()
        except MeasuringFailed:
            pass  # raised again by the first job
        finally:
            with self._lock:
                self._starting.discard(process)
                closed = self._closed.is_set()
            if closed:
                process.close()
            else:
                self._free.put(process)

    def announce(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            for candidate in job.candidates:
                self._compile(job.workload, candidate)

    def _compile(
        self, workload: Workload, candidate: Candidate
    ) -> concurrent.futures.Future[None] | None:
        """The compilation that a candidate waits for; each kernel is compiled once."""
        name = self._measurer.kernel(candidate)
        if not name:
            return None
        with self._lock:
            if name not in self._compiled:
                prepare = self._measurer.prepare
                self._compiled[name] = self._compilers.submit(prepare, workload, candidate)
            return self._compiled[name]

    def close(self) -> None:
        self._compilers.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed.set()
            ended = [process for process in self._processes if process not in self._starting]
        for process in ended:  # the others are ended by the threads that start them
            process.close()


def _failure(compiling: concurrent.futures.Future[None] | None) -> str:
    """Why a kernel could not be compiled; empty when it was, or need not be."""
    try:
        if compiling is not None:
            compiling.result()
    except CompileFailed as err:
        return f"CompileFailed: {err}"[:500]
    return ""


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as values for CUDA_VISIBLE_DEVICES; empty for none."""
    found, _ = find_gpus()
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return [name.strip() for name in named.split(",")][: len(found)]
    return [str(gpu.ordinal) for gpu in found]

"""The GPUs of this machine, which measure while its cores compile."""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from ..backends.kernels.compile import default_jobs
from ..errors import MeasuringFailed
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..measure.gpu import find_gpus
from .compilations import Compilations
from .executor import Executor
from .job import Job, Result
from .measurer import Spec
from .process import TIMEOUT_S, MeasuringProcess

#: Measuring processes of a GPU: preparing on the host takes about as long as measuring.
PROCESSES = 3


class LocalExecutor(Executor):
    """Measures on GPUs of this machine in child processes, which start when they are needed.

    Each GPU has several processes and one lock: one process has the GPU to itself while the others
    build plans and compute references.

    Args:
        spec: The measurer.
        gpus: Values for CUDA_VISIBLE_DEVICES, one for each GPU.
        compile_jobs: Compilers at once; default: as many as the cores and memory allow.
        timeout_s: Seconds without an answer after which a measuring process is killed.

    Raises:
        NoGpu: There is no GPU.
    """

    def __init__(
        self,
        spec: Spec,
        gpus: Sequence[str | None] = (None,),
        compile_jobs: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._measurer = spec.make()
        self._gpu_locks = {gpu: threading.Lock() for gpu in gpus}
        self._processes = [
            MeasuringProcess(spec, gpu, timeout_s) for _ in range(PROCESSES) for gpu in gpus
        ]
        self._free: queue.SimpleQueue[MeasuringProcess] = queue.SimpleQueue()
        compile_jobs = compile_jobs or default_jobs()
        self._compilations = Compilations(self._measurer, compile_jobs)
        self._lock = threading.Lock()
        self._starting: set[MeasuringProcess] = set()
        self._closed = threading.Event()
        self.slots = len(self._processes) + 2 * compile_jobs
        # Known here, so that a run which finds everything in records starts no process.
        self.environment = self._measurer.environment()
        for process in self._processes:
            self._free.put(process)

    @functools.cached_property
    def device(self) -> Device:  # type: ignore[override]
        return self._measurer.describe()[0]

    def run(self, job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Result]:
        failures = self._compilations.failures(job)
        if stop():
            return
        process = self._free.get()
        try:
            best_us = job.best_us
            for candidate, failure in zip(job.candidates, failures, strict=True):
                if stop():
                    return
                result = self._measure(process, job.workload, candidate, failure, best_us)
                time_us = result.measurement.kernel_us
                if result.measurement.ok and time_us is not None:
                    best_us = time_us if best_us is None else min(best_us, time_us)
                yield result
        finally:
            self._free.put(process)

    def _measure(
        self,
        process: MeasuringProcess,
        workload: Workload,
        candidate: Candidate,
        failure: str,
        best_us: float | None,
    ) -> Result:
        """Measure one candidate, unless its compilation is a ``failure``."""
        measurement, seconds = Measurement(failure=failure), 0.0
        if not failure:
            lock = self._gpu_locks[process.gpu]
            measurement, seconds = process.measure(workload, candidate, best_us, lock)
        environment = self._measurer.narrow(process.describe()[1], candidate)
        return Result(workload, candidate, measurement, environment, seconds)

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
            self._compilations.submit(job)

    def close(self) -> None:
        self._compilations.close()
        with self._lock:
            self._closed.set()
            ended = [process for process in self._processes if process not in self._starting]
        for process in ended:  # the others are ended by the threads that start them
            process.close()


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as values for CUDA_VISIBLE_DEVICES."""
    found, _ = find_gpus()
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return [name.strip() for name in named.split(",")][: len(found)]
    return [str(ordinal) for ordinal in range(len(found))]

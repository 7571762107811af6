"""Kernel compilations of a run, each done once, on as many cores as given."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from ..errors import CompileFailed
from ..ir.candidate import Candidate
from ..ir.workload import Workload
from .job import Job
from .measurer import Measurer


class Compilations:
    """Compiles what a measurer's candidates need, with ``threads`` compilers at once."""

    def __init__(self, measurer: Measurer, threads: int) -> None:
        self._measurer = measurer
        self._pool = ThreadPoolExecutor(threads, "compile")
        self._submitted: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def submit(self, job: Job) -> list[Future[None] | None]:
        """Start the compilations that a job's candidates wait for, unless they are running; None if
        there are none."""
        return [self._submit(job.workload, candidate) for candidate in job.candidates]

    def failures(self, job: Job) -> list[str]:
        """Wait for a job's kernels; return why each could not be compiled, empty if it could.

        Raises LibraryMissing and CacheUnwritable, which concern all kernels.
        """
        return [_failure(compilation) for compilation in self.submit(job)]

    def close(self) -> None:
        """Cancel compilations that have not started."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, workload: Workload, candidate: Candidate) -> Future[None] | None:
        name = self._measurer.kernel(candidate)
        if not name:
            return None
        with self._lock:
            if name not in self._submitted:
                prepare = self._measurer.prepare
                self._submitted[name] = self._pool.submit(prepare, workload, candidate)
            return self._submitted[name]


def _failure(compilation: Future[None] | None) -> str:
    try:
        if compilation is not None:
            compilation.result()
    except CompileFailed as err:
        return f"CompileFailed: {err}"[:500]
    return ""

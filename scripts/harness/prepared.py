"""Processes that prepare side by side and are timed one at a time.

A worker prepares its systems, calls :func:`ready`, and prints its result as JSON in its last line.
Its parent makes a :class:`Prepared` of it, waits until all are ready, and lets one after the other
go: preparing takes many cores, timing must have the machine for itself. :func:`run_alone` runs one
from its start to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

READY = "ready to be timed"
#: Variables that name the folders of caches.
CACHES = (
    *("CONVOY_CACHE_DIR", "CONVOY_DATA_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    "CUDA_CACHE_PATH",
)


def caches_in(folder: Path) -> dict[str, str]:
    """Variables for caches of this folder, which are empty if it is."""
    return {name: str(folder / name.lower()) for name in CACHES}


def ready() -> None:
    """Return when it is this worker's turn; end the process if its parent is gone."""
    print(READY, flush=True)
    if not sys.stdin.readline():
        raise SystemExit("the process that started this one is gone")


class Prepared:
    """A worker process; ``command`` and ``environment`` as for subprocess."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._command, self._environment = list(command), environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  as long as the process
        self._last = ""
        self._stopped = False

    def start(self) -> None:
        """Start the worker; return once it is ready or has ended."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True,
            env=self._environment,
        )  # fmt: skip
        if self._stopped:  # meanwhile
            self.stop()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == READY:
                return
            self._last = line if line.strip() else self._last

    def go(self) -> Any:
        """Let the worker be timed and return its result.

        Raises:
            RuntimeError: It has none; with the end of its standard error.
        """
        if self._process is None or self._stopped:
            raise RuntimeError("not ready in time")
        try:
            rest, _ = self._process.communicate("go\n")
        except (BrokenPipeError, ValueError):  # it ended before its turn
            self._process.wait()
            rest = ""
        lines = [line for line in [self._last, *rest.splitlines()] if line.strip()]
        if self._process.returncode:
            raise RuntimeError(f"exit code {self._process.returncode}: {self._reason()}")
        try:
            return json.loads(lines[-1])
        except (IndexError, json.JSONDecodeError):
            raise RuntimeError(f"no result: {self._reason()}") from None

    def stop(self) -> None:
        """Kill the worker, or do so as soon as it has started."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _reason(self) -> str:
        self._errors.seek(0)
        return (self._errors.read() or self._last).strip()[-1200:]


def prepare(workers: Sequence[Prepared], jobs: int, seconds: float) -> float:
    """Start workers, at most ``jobs`` at a time, and wait until all are ready.

    Workers that are not ready within ``seconds`` are stopped. Returns the seconds that it took.
    """
    started = time.perf_counter()
    pool = ThreadPoolExecutor(max(1, jobs))
    waiting = [pool.submit(worker.start) for worker in workers]
    for worker, done in zip(workers, waiting, strict=True):
        left = seconds - (time.perf_counter() - started)
        try:
            done.result(max(0.0, left))
        except TimeoutError:
            done.cancel()
            worker.stop()
    pool.shutdown()
    return time.perf_counter() - started


def run_alone(
    command: Sequence[str], environment: dict[str, str], seconds: float
) -> tuple[Any, str]:
    """Run a worker; returns its result, the JSON in its last line, and its standard error.

    Raises:
        RuntimeError: It has no result, or not within ``seconds``; with the end of its standard
            error.
    """
    # Files, not pipes, which processes that a worker has started would hold open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
        try:
            end = f"exit code {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            end = f"not ended within {seconds:.0f} s"
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        errors.seek(0)
        lines, reason = out.read().strip().splitlines(), errors.read()
    try:
        if process.returncode == 0:
            return json.loads(lines[-1]), reason
    except (IndexError, json.JSONDecodeError):
        end = "no result"
    raise RuntimeError(f"{end}: {reason.strip()[-1200:]}")

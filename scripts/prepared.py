"""Processes that get ready beside each other and are timed one at a time.

A worker prepares what it times, calls :func:`ready`, and prints its result as JSON in its last
line. What starts it makes a :class:`Prepared` of it, waits until all are ready, and lets one after
the other go: preparing takes many cores, timing must have the machine for itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from typing import Any

READY = "ready to be timed"


def ready() -> None:
    """Of a worker: returns when it is its turn. Ends the process when nobody will say so."""
    print(READY, flush=True)
    if not sys.stdin.readline():
        raise SystemExit("the process that started this one is gone")


class Prepared:
    """A worker process; ``command`` as for subprocess."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  as long as the process
        self._last = ""

    def start(self) -> None:
        """Starts the worker and returns once it is ready or over."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            text=True,
        )
        for line in self._process.stdout:
            if line.strip() == READY:
                return
            self._last = line if line.strip() else self._last

    def go(self) -> Any:
        """The worker's result. Raises RuntimeError with its last words where it has none."""
        if self._process is None:
            raise RuntimeError("not ready in time")
        try:
            rest, _ = self._process.communicate("go\n")
        except (BrokenPipeError, ValueError):  # over before it was its turn
            self._process.wait()
            rest = ""
        lines = [line for line in [self._last, *rest.splitlines()] if line.strip()]
        if self._process.returncode:
            raise RuntimeError(f"exit code {self._process.returncode}: {self._said()}")
        try:
            return json.loads(lines[-1])
        except (IndexError, json.JSONDecodeError):
            raise RuntimeError(f"no result: {self._said()}") from None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        self._errors.seek(0)
        return (self._errors.read() or self._last).strip()[-1200:]


def prepare(workers: Sequence[Prepared], jobs: int, seconds: float) -> float:
    """Starts workers, at most ``jobs`` getting ready at a time, and waits until all are. Those that
    are not within ``seconds`` are stopped. Returns how many seconds it took."""
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

"""A measuring process under supervision: whatever it does, the one that asks gets an answer."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from ..child_process import python_module
from ..errors import MeasuringFailed
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment
from .measurer import Spec

#: A measurement takes a second at most; plans that cuDNN compiles at run time take up to ten.
TIMEOUT_S = 60.0
#: Loading TVM and CUDA, on a busy machine.
START_TIMEOUT_S = 180.0


class MeasuringProcess:
    """Measures candidates in a process of its own on one GPU, started when it is first needed.

    A fault, a hang (no answer after ``timeout_s``) and a lost GPU end that process, become the
    candidate's failure, and the next candidate gets a fresh process. Not for several threads.
    """

    def __init__(self, spec: Spec, gpu: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._spec, self.gpu, self._timeout_s = spec, gpu, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the object)
        self._unread = b""
        self._about: tuple[Device, Environment] | None = None

    def describe(self) -> tuple[Device, Environment]:
        """The process's GPU and environment. Raises MeasuringFailed where it does not start."""
        if self._about is None:
            self._start()
        assert self._about is not None
        return self._about

    def measure(
        self,
        workload: Workload,
        candidate: Candidate,
        best_us: float | None,
        turn: contextlib.AbstractContextManager[Any] | None = None,
    ) -> tuple[Measurement, float]:
        """(figures or failure, seconds). The GPU is used within ``turn`` alone; waiting for that
        is in neither the seconds nor the time allowed. Raises MeasuringFailed."""
        started = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            self._start()
        answer = None
        try:
            answer = self._ask(workload=workload.to_json(), candidate=candidate.to_json())
            if answer is not None and "ready" in answer:
                with turn or contextlib.nullcontext():
                    started = time.monotonic()
                    answer = self._ask(best_us=best_us)
        except BrokenPipeError:
            pass  # it died before it could read: handled as any other death
        except TimeoutError:
            self.close()
            reason = f"no result after {self._timeout_s:g} s: the process was killed"
            return Measurement(failure=reason), time.monotonic() - started
        if answer is not None and "measurement" in answer:
            return Measurement.from_json(answer["measurement"]), answer["seconds"]
        if answer is not None:
            reason = answer["lost"]
            self.close()
        else:
            reason = self._how_it_died()
            self.close()
        return Measurement(failure=reason), time.monotonic() - started

    def close(self) -> None:
        """End the process, whatever it is doing, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        self._requests.close()
        process.kill()
        try:
            # The driver waits for a running kernel to be torn down.
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise MeasuringFailed(
                f"a killed process {process.pid} that still holds GPU {self.gpu or 0}",
                "a GPU that stops",
                "Reset the GPU or restart the machine.",
            ) from None
        finally:
            os.close(self._answers)

    def _start(self) -> None:
        self.close()
        read_requests, write_requests = os.pipe()
        self._answers, write_answers = os.pipe()
        self._unread = b""
        environment = dict(os.environ)
        if self.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu
        # The supervisor may have found its modules through sys.path alone.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._errors.seek(0)
        self._errors.truncate()
        self._process = (
            _spawner()
            .submit(
                subprocess.Popen,
                python_module(
                    "convoy.tune.child",
                    self._spec.dumps(),
                    str(read_requests),
                    str(write_answers),
                ),
                pass_fds=(read_requests, write_answers),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
            )
            .result()
        )
        os.close(read_requests)
        os.close(write_answers)
        self._requests = os.fdopen(write_requests, "wb")
        try:
            answer = self._receive(START_TIMEOUT_S)
        except TimeoutError:
            answer = {"error": f"nothing within {START_TIMEOUT_S:g} s"}
        if answer is None or "error" in answer:
            reason = answer["error"] if answer else self._how_it_died()
            self.close()
            raise MeasuringFailed(
                f"a measuring process that does not start ({reason})",
                "one that measures",
                "Run `convoy doctor --gpu`.",
            )
        self._about = Device(**answer["device"]), Environment.from_json(answer["environment"])

    def _ask(self, **request: Any) -> dict[str, Any] | None:
        """The answer to a request; None when the process has ended. Raises TimeoutError."""
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        return self._receive(self._timeout_s)

    def _receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next answer; None when the process has ended. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select(
                [self._answers], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                raise TimeoutError
            received = os.read(self._answers, 1 << 16)
            if not received:
                return None
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _how_it_died(self) -> str:
        """Signal or exit status, and the last words."""
        assert self._process is not None
        try:
            status = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return "the process stopped answering"
        if status < 0:
            try:
                how = f"the process died of {signal.Signals(-status).name}"
            except ValueError:
                how = f"the process died of signal {-status}"
        else:
            how = f"the process ended with status {status}"
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        last = next((line.strip() for line in reversed(words) if line.strip()), "")
        return f"{how}: {last}"[:500] if last else how


@functools.cache
def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    """The thread that starts processes. They die with the thread that started them (see child.py),
    so it must be one that lives as long as this process."""
    return concurrent.futures.ThreadPoolExecutor(1, "spawn")

"""A supervised measuring process: crashes, hangs and lost GPUs become results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time

from ..child_process import START_TIMEOUT_S, python_module
from ..errors import MeasuringFailed
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment
from .channel import Channel
from .measurer import Spec

#: A measurement takes a second at most; plans that cuDNN compiles at run time take up to ten.
TIMEOUT_S = 60.0


class MeasuringProcess:
    """Measures candidates in a child process on one GPU, started when it is first needed.

    A fault, a hang and a lost GPU end that process and become the candidate's failure; the next
    candidate gets a new process. Not thread-safe.

    Args:
        spec: The measurer that the child makes.
        gpu: Value for CUDA_VISIBLE_DEVICES; None leaves it as it is.
        timeout_s: Seconds without an answer after which the child is killed.
    """

    def __init__(self, spec: Spec, gpu: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._spec, self.gpu, self._timeout_s = spec, gpu, timeout_s
        self._child: tuple[subprocess.Popen[bytes], Channel] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the object)
        self._description: tuple[Device, Environment] | None = None

    @property
    def running(self) -> bool:
        """Whether the child process is running."""
        return self._child is not None and self._child[0].poll() is None

    def describe(self) -> tuple[Device, Environment]:
        """Return GPU and environment of the child. Raises MeasuringFailed if it does not start."""
        if self._description is None:
            self._start()
        assert self._description is not None
        return self._description

    def measure(
        self,
        workload: Workload,
        candidate: Candidate,
        best_us: float | None,
        gpu_lock: contextlib.AbstractContextManager[object] | None = None,
    ) -> tuple[Measurement, float]:
        """Measure one candidate.

        Args:
            workload: The workload.
            candidate: One that is compiled, or needs no compilation.
            best_us: Fastest kernel known; much slower ones are measured less closely.
            gpu_lock: Held while the GPU is used. Waiting for it counts neither as duration nor
                against the timeout.

        Returns:
            The measurement, which may be a failure, and its duration in seconds.

        Raises:
            MeasuringFailed: The child does not start, or cannot be killed.
        """
        started = time.monotonic()
        if not self.running:
            self._start()
        assert self._child is not None
        channel, answer = self._child[1], None
        try:
            answer = channel.ask(
                self._timeout_s, workload=workload.to_json(), candidate=candidate.to_json()
            )
            if answer is not None and "ready" in answer:
                with gpu_lock or contextlib.nullcontext():
                    started = time.monotonic()
                    answer = channel.ask(self._timeout_s, best_us=best_us)
        except BrokenPipeError:
            pass  # it ended before it could read: handled as any other end
        except TimeoutError:
            answer = {"lost": f"no result after {self._timeout_s:g} s: the process was killed"}
        if answer is not None and "measurement" in answer:
            return Measurement.from_json(answer["measurement"]), answer["seconds"]
        reason = self._exit_reason() if answer is None else answer["lost"]
        self.close()
        return Measurement(failure=reason), time.monotonic() - started

    def close(self) -> None:
        """Kill the child and wait for its end."""
        child, self._child = self._child, None
        if child is None:
            return
        process, channel = child
        channel.close_requests()
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
            channel.close_answers()

    def _start(self) -> None:
        self.close()
        channel = Channel()
        self._child = self._spawn(channel), channel
        channel.close_child_fds()
        try:
            answer = channel.receive(START_TIMEOUT_S)
        except TimeoutError:
            answer = {"error": f"no answer within {START_TIMEOUT_S:g} s"}
        if answer is None or "error" in answer:
            reason = answer["error"] if answer else self._exit_reason()
            self.close()
            raise MeasuringFailed(
                f"a measuring process that does not start ({reason})",
                "one that measures",
                "Run `convoy doctor --gpu`.",
            )
        environment = Environment.from_json(answer["environment"])
        self._description = Device(**answer["device"]), environment

    def _spawn(self, channel: Channel) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu
        # The supervisor may have found its modules through sys.path alone.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._output.seek(0)
        self._output.truncate()
        descriptors = map(str, channel.child_fds)
        command = python_module("convoy.tune.child", self._spec.dumps(), *descriptors)
        spawned = _spawner().submit(
            subprocess.Popen,
            command,
            pass_fds=channel.child_fds,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )
        process: subprocess.Popen[bytes] = spawned.result()
        return process

    def _exit_reason(self) -> str:
        """Return signal or exit status of the child, and its last line of output."""
        assert self._child is not None
        try:
            status = self._child[0].wait(10)
        except subprocess.TimeoutExpired:
            return "the process stopped answering"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        reason = _status_text(status)
        return f"{reason}: {last}"[:500] if last else reason


def _status_text(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        return f"the process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"the process died of signal {-status}"


@functools.cache
def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    """Return the thread that starts processes.

    They die with the thread that started them (see child.py), so it must be one that lives as long
    as this process.
    """
    return concurrent.futures.ThreadPoolExecutor(1, "spawn")

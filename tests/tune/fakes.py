"""A simulated measurer, some of whose candidates fail, and a backend that proposes them."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from convoy.backends.base import Backend, Binary
from convoy.errors import CompileFailed, NoGpu
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.environment import Environment
from convoy.tune.measurer import Measurer
from convoy.tune.space import Space

ENVIRONMENT = Environment(gpu="Fake", sm_count=132, driver="1.0", cudnn="9.19.0")


def workload(i: int = 0, **changes: int) -> Workload:
    fields = {"n": 8, "h": 28, "w": 28, "c": 64 * (i + 1), "k": 128, "r": 1, "s": 1}
    return Workload("fprop", **fields | changes)


def candidate(i: int, kernel: str = "") -> Candidate:
    options = {"engine": i, "knobs": [[14, i % 7], [2, i % 5]]}
    if kernel:
        options["kernel"] = {"name": kernel, "tile": [64 << i % 3, 64 << i % 2, 64]}
    return Candidate("cudnn", kernel or f"eng{i}", make_config(**options), priority=i)


def space(of: Workload, count: int = 20) -> Space:
    return Space(of, tuple(candidate(i) for i in range(count)))


def time_us(of: Workload, of_candidate: Candidate) -> float:
    """Return a simulated kernel time, nearly the same function of the engine for all workloads."""
    engine = of_candidate.options()["engine"]
    own = zlib.crc32(f"{of.key}{of_candidate.key}".encode()) % 100 / 1000
    return math.log2(of.flops) * (1 + abs(engine % 20 - 7) * 0.1 + own)


class FakeMeasurer(Measurer):
    """Appends what it does to ``log``. Candidates named in ``behaviour`` do not just answer:
    ``segv``, ``hang``, ``exit``, ``lost``, ``oom``, ``nocompile``."""

    def __init__(
        self,
        log: str = "",
        behaviour: dict[str, str] | None = None,
        delay: float = 0.0,
        gpu: str = ENVIRONMENT.gpu,
    ) -> None:
        self._log, self._behaviour, self._delay = log, behaviour or {}, delay
        self._gpu = gpu

    def describe(self) -> tuple[Device, Environment]:
        start = self._behaviour.get("start")
        if start == "fail":
            raise NoGpu("no GPU at all", "a GPU")
        if start == "fail in the child" and "convoy.tune.child" in sys.argv[0].replace("/", "."):
            raise RuntimeError("no GPU in the child")
        return Device(), dataclasses.replace(ENVIRONMENT, gpu=self._gpu)

    def ready(self, workload: Workload, candidate: Candidate) -> None:
        self._note("ready", workload, candidate)

    def measure(
        self, workload: Workload, candidate: Candidate, best_us: float | None
    ) -> Measurement:
        what = self._behaviour.get(candidate.kernel, "")
        self._note("measure", workload, candidate)
        time.sleep(self._delay)
        if what == "segv":
            print("about to fault", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "hang":
            time.sleep(1000)
        if what == "exit":
            os._exit(3)
        if what == "lost":
            raise RuntimeError("the GPU stopped working")
        if what == "oom":
            return Measurement(failure="RuntimeError: cudaMalloc failed: out of memory")
        self._note("end", workload, candidate)
        return Measurement(kernel_us=time_us(workload, candidate), samples=30, error=2e-4)

    def kernel(self, candidate: Candidate) -> str:
        return str(candidate.options().get("kernel", {}).get("name", ""))

    def prepare(self, workload: Workload, candidate: Candidate) -> None:
        self._note("compile", workload, candidate)
        if self._behaviour.get(candidate.kernel) == "nocompile":
            raise CompileFailed("an error", "a kernel")

    def narrow(self, environment: Environment, candidate: Candidate) -> Environment:
        return environment.narrowed(["cudnn"])

    def _note(self, what: str, workload: Workload, candidate: Candidate) -> None:
        if self._log:
            gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            with Path(self._log).open("a") as stream:
                stream.write(f"{what} {workload.key} {candidate.kernel} {os.getpid()} {gpu}\n")


class FakeBackend(Backend):
    name = "cudnn"
    libraries = ("cudnn",)

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        return space(workload).candidates

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        raise NotImplementedError

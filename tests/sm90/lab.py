"""Run Convoy's own kernels on the GPU in a process of their own, with a watchdog.

A kernel under development may hang or break its CUDA context. So jobs go to a worker process, one
JSON line each; a job that does not answer in time, or takes the worker down, is reported as such,
and a fresh worker goes on with the next one. ``lab.py --worker`` is such a process: under
compute-sanitizer it runs the jobs that ``cases.py --dump-jobs`` writes.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy.ir.activation_values import activate
from convoy.ir.workload import Workload

#: Seconds until a worker has imported torch and set up CUDA.
START_TIMEOUT_S = 180.0
#: Breakdowns (hangs, crashes) of one kernel, and of all, after which jobs are not tried any more:
#: each costs its timeout and the start of a new worker.
MOST_BREAKDOWNS, MOST_BREAKDOWNS_IN_ALL = 1, 16
#: Bytes before and behind the result that no kernel may touch.
GUARD = 4096


@dataclass(frozen=True)
class Job:
    """A launch of a compiled kernel library.

    ``sm_count`` 0 takes the device's; a small one makes each block work on many tiles.
    """

    name: str
    workload: Workload
    library: str = ""
    swizzle: int = 0
    sm_count: int = 0

    @property
    def timeout_s(self) -> float:
        return 15.0

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "workload": self.workload.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        return cls(**{**data, "workload": Workload.from_json(data["workload"])})


@dataclass
class Result:
    """``error`` is empty for a job that ran and is right, ``relative`` the relative L2 error
    against float64."""

    error: str = ""
    relative: float = float("nan")
    blocks: int = 0


def run(jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    """Results in the order of the jobs, as they come."""
    start = 0
    breakdowns: collections.Counter[str] = collections.Counter()
    while start < len(jobs):
        worker = _Worker()
        try:
            if error := worker.wait_until_ready():
                for job in jobs[start:]:
                    yield job, Result(error=error)
                return
            while start < len(jobs):
                job = jobs[start]
                start += 1
                too_many = breakdowns.total() >= MOST_BREAKDOWNS_IN_ALL
                if too_many or breakdowns[job.name] >= MOST_BREAKDOWNS:
                    yield job, Result(error="not tried after hangs or crashes before")
                    continue
                result = worker.do(job)
                yield job, result
                if result.error.startswith(("HANG", "CRASH", "CUDA")):
                    breakdowns[job.name] += 1
                    break
        finally:
            worker.end()


def run_side_by_side(jobs: Sequence[Job], workers: int = 4) -> list[tuple[Job, Result]]:
    """The same with several processes at once, each with a run of neighbouring jobs. Results in
    the order of the jobs."""
    size = -(-len(jobs) // workers) or 1
    parts = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return [found for part in pool.map(lambda part: list(run(part)), parts) for found in part]


def _path_with_torch() -> str:
    """``PYTHONPATH`` without the folder by which processes of tests do without PyTorch."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(path for path in paths if not path.endswith("without_torch"))


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": _path_with_torch()},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put("")  # the worker has ended

    def _next(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            return {"error": f"HANG: no answer in {timeout:.0f} s"}
        return json.loads(line) if line else {"error": f"CRASH: exit {self._process.wait(10)}"}

    def wait_until_ready(self) -> str:
        return self._next(START_TIMEOUT_S).get("error", "")

    def do(self, job: Job) -> Result:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job.to_json()) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            return Result(error=f"CRASH: worker gone ({error})")
        return Result(**self._next(job.timeout_s))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def reference(torch: Any, w: Workload, a: Any, filt: Any, bias: Any, residual: Any = None) -> Any:
    """dx, y or dw in float64 by definition, one GEMM for each filter position. ``filt`` is x for
    wgrad."""
    top, left, bottom, right = w.padding
    (sh, sw), (step_h, step_w), f64 = w.stride, w.dilation, torch.float64
    height, width = w.h + top + bottom, w.w + left + right
    padded = torch.zeros((w.n, height, width, w.c), dtype=f64, device=a.device)
    inner = padded[:, top : top + w.h, left : left + w.w]
    a64, filt64 = a.to(f64), filt.to(f64)
    if w.op == "wgrad":
        inner.copy_(filt64)
        dw = torch.zeros((w.k, w.r, w.s, w.c), dtype=f64, device=a.device)
    if w.op == "fprop":
        inner.copy_(a64)
        y = torch.zeros((w.n, w.p, w.q, w.k), dtype=f64, device=a.device)
    for r in range(w.r):
        for s in range(w.s):
            first_h, first_w = r * step_h, s * step_w
            h_end, w_end = first_h + sh * (w.p - 1) + 1, first_w + sw * (w.q - 1) + 1
            window = padded[:, first_h:h_end:sh, first_w:w_end:sw]
            if w.op == "fprop":
                y += window @ filt64[:, r, s].T
            elif w.op == "wgrad":
                dw[:, r, s] = a64.reshape(-1, w.k).T @ window.reshape(-1, w.c)
            else:
                window += a64 @ filt64[:, r, s]
    if w.op == "dgrad":
        return inner
    if w.op == "wgrad":
        return dw
    e = w.epilogue
    if bias is not None:
        y += bias.to(f64)
    if residual is not None and not e.residual_last:
        y += residual.to(f64)
    active = activate(e.activation, y.cpu().numpy(), e.alpha, e.clip_min, e.clip_max)
    y = torch.from_numpy(active).to(y.device)
    return y + residual.to(f64) if e.residual_last else y


class _Bench:
    """One workload's operands on the GPU, kept for the jobs that share it."""

    def __init__(self, torch: Any, w: Workload) -> None:
        self.torch, self.w = torch, w
        generator = torch.Generator("cuda").manual_seed(11)
        dtype = getattr(torch, w.dtype)
        operands = {name: shape for name, shape, _ in w.operand_shapes()}

        def random(name: str) -> Any:
            shape = operands[name]
            return torch.randn(shape, generator=generator, device="cuda").to(dtype)

        self.a = random("x" if w.op == "fprop" else "dy")
        self.filter = random("x" if w.op == "wgrad" else "w")
        self.workspace = torch.empty(0, dtype=torch.uint8, device="cuda")
        self.bias = random("bias") if w.epilogue.bias else None
        self.residual = random("residual") if w.epilogue.residual else None
        shape = w.operand_shapes()[-1][1]
        self.bytes = torch.Size(shape).numel() * dtype.itemsize
        self.raw = torch.empty(self.bytes + 2 * GUARD, dtype=torch.uint8, device="cuda")
        self.out = self.raw[GUARD : GUARD + self.bytes].view(dtype).view(shape)
        self._expected: Any = None

    def poison(self) -> None:
        self.raw.fill_(0xFF)  # NaN in all types
        self.workspace.fill_(0xFF)

    def verdict(self, out: Any) -> tuple[str, float]:
        """(description of the error, relative L2 error) of a result."""
        torch = self.torch
        if self._expected is None:
            self._expected = reference(torch, self.w, self.a, self.filter, self.bias, self.residual)
        got = out.to(torch.float64)
        left = int(torch.isnan(got).sum())
        if left:
            places = torch.nonzero(torch.isnan(got))
            first, last = places[0].tolist(), places[-1].tolist()
            return f"{left} of {got.numel()} elements NaN or not written: {first} to {last}", 1.0
        difference = got - self._expected
        norm = float(self._expected.norm())
        if norm == 0.0:
            wrong = int((got != 0).sum())
            return (f"{wrong} elements are not zero" if wrong else ""), float(wrong)
        relative = float(difference.norm()) / norm
        limit = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6}[self.w.dtype]
        if self.w.math == "tf32":  # what saturates is small beside what was rounded
            limit = 2e-3 if self.w.epilogue.activation == "tanh" else 5e-4
        if relative <= limit:
            return "", relative
        places = torch.nonzero(difference.abs() > 0.05 * norm / got.numel() ** 0.5)
        if not len(places):
            return f"relative error {relative:.3g}, spread over all elements", relative
        first, last = places[0].tolist(), places[-1].tolist()
        return (
            f"relative error {relative:.3g}; {len(places)} of {got.numel()} elements wrong,"
            f" from (n,h,w,c) = {first} to {last}",
            relative,
        )

    def guards(self) -> str:
        before, behind = self.raw[:GUARD], self.raw[GUARD + self.bytes :]
        touched = int((before != 0xFF).sum()), int((behind != 0xFF).sum())
        return f"bytes outside the result overwritten (before, behind): {touched}" * any(touched)


def _own(torch: Any, job: Job, bench: _Bench, result: Result) -> Callable[[], None] | None:
    """A function that launches the job's kernel; None when it declines."""
    from tests.helpers.kernel_abi.library import KernelLibrary, Operands, Shape

    sm_count = job.sm_count or torch.cuda.get_device_properties(0).multi_processor_count
    library = KernelLibrary(job.library)
    shape = Shape.of(bench.w, sm_count, swizzle=job.swizzle)
    if why := library.check(shape):
        result.error = f"declined: {why}"
        return None
    size = library.workspace(shape)
    bench.workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    operands = Operands(
        a=bench.a.data_ptr(),
        b=bench.filter.data_ptr(),
        bias=bench.bias.data_ptr() if bench.bias is not None else None,
        residual=bench.residual.data_ptr() if bench.residual is not None else None,
        d=bench.out.data_ptr(),
        workspace=bench.workspace.data_ptr() if size else None,
    )
    kernel = library.prepare(shape, operands)
    result.blocks = kernel.footprint().blocks
    return lambda: kernel.launch(torch.cuda.current_stream().cuda_stream)


def _work(torch: Any, job: Job, bench: _Bench) -> Result:
    result = Result()
    launch = _own(torch, job, bench, result)
    if launch is None:
        return result
    stream = torch.cuda.Stream()
    bench.poison()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.synchronize()
    error, result.relative = bench.verdict(bench.out)
    result.error = error or bench.guards()
    if result.error:
        return result
    first = bench.out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):  # torch.cuda.graph would collect garbage for each job
        graph.capture_begin()
        for _ in range(2):
            launch()
        graph.capture_end()
    bench.poison()
    graph.replay()
    torch.cuda.synchronize()
    if error := bench.verdict(bench.out)[0]:
        result.error = f"replayed from a graph: {error}"
    elif not torch.equal(first, bench.out):
        result.error = "replayed from a graph: other bits than before"
    return result


def worker() -> None:
    """Read jobs from stdin, answer each with one JSON line."""

    def say(data: dict[str, Any]) -> None:
        print(json.dumps(data), flush=True)

    try:
        import torch

        torch.zeros(1, device="cuda")
    except Exception as error:
        say({"error": f"CUDA: {error}"})
        return
    say({})
    bench: _Bench | None = None
    for line in sys.stdin:
        job = Job.from_json(json.loads(line))
        try:
            if bench is None or bench.w != job.workload:
                bench = None  # frees the memory of the last one first
                torch.cuda.empty_cache()
                bench = _Bench(torch, job.workload)
            result = _work(torch, job, bench)
            torch.cuda.synchronize()
        except Exception as error:
            words = f"{type(error).__name__}: {error}".splitlines()[0]
            broken = "CUDA error" in str(error)
            result = Result(error=("CUDA: " if broken else "") + words)
        say(dataclasses.asdict(result))


if __name__ == "__main__" and "--worker" in sys.argv:
    sys.path.insert(0, str(Path(__file__).parents[2]))  # of the package "tests"
    worker()

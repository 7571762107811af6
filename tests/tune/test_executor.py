"""Measuring processes that die, hang or lose the GPU, and executors over several GPUs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tune import fakes

from convoy.errors import LibraryMissing, MeasuringFailed, NoGpu
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.tune.budget import Budget
from convoy.tune.job import Job
from convoy.tune.local_executor import PROCESSES, LocalExecutor
from convoy.tune.process import MeasuringProcess
from convoy.tune.search import Exhaustive
from convoy.tune.space import Space
from convoy.tune.tuner import Tuner

Make = Callable[..., LocalExecutor]


def kernels(log: Path, what: str = "measure") -> list[str]:
    lines = [line.split() for line in log.read_text().splitlines()]
    return [line[2] for line in lines if line[0] == what]


def run(executor: LocalExecutor, *candidates, of=None):
    return list(executor.run(Job(of or fakes.workload(), candidates)))


def test_results_come_with_the_environment_that_matters(executor: Make) -> None:
    made = executor()
    (result,) = run(made, fakes.candidate(3))
    assert result.measurement.kernel_us == fakes.time_us(fakes.workload(), fakes.candidate(3))
    assert made.environment == fakes.ENVIRONMENT
    assert result.environment == fakes.ENVIRONMENT.narrowed(["cudnn"])
    assert result.seconds > 0


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("segv", "the process died of SIGSEGV: about to fault"),
        ("exit", "the process ended with status 3"),
        ("lost", "RuntimeError: the GPU stopped working"),
        ("oom", "RuntimeError: cudaMalloc failed: out of memory"),
    ],
)
def test_a_mishap_is_the_candidates_failure(executor: Make, behaviour: str, reason: str) -> None:
    made = executor(behaviour={"eng1": behaviour})
    results = run(made, *(fakes.candidate(i) for i in range(3)))
    assert [r.measurement.ok for r in results] == [True, False, True]
    assert results[1].measurement.failure == reason


def test_a_hang_is_cut_short(executor: Make) -> None:
    made = executor(behaviour={"eng0": "hang"}, timeout_s=3.0)  # it would sleep for 1000 s
    hung, fine = run(made, fakes.candidate(0), fakes.candidate(1))
    assert hung.measurement.failure == "no result after 3 s: the process was killed"
    assert fine.measurement.ok


def test_a_lost_process_is_replaced_a_good_one_kept(executor: Make, log: Path) -> None:
    made = executor(behaviour={"eng2": "segv"})
    run(made, *(fakes.candidate(i) for i in range(5)))
    lines = [line.split() for line in log.read_text().splitlines()]
    pids = [line[3] for line in lines if line[0] == "measure"]
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4]


def test_a_machine_that_cannot_measure_is_an_error(executor: Make) -> None:
    with pytest.raises(NoGpu, match="no GPU at all"):
        executor(behaviour={"start": "fail"})


def test_a_process_that_does_not_start_is_an_error(executor: Make) -> None:
    """Here all is well, and there it is not: every candidate would fail for nothing."""
    made = executor(behaviour={"start": "fail in the child"})
    with pytest.raises(MeasuringFailed, match="no GPU in the child"):
        run(made, fakes.candidate(0))


def test_no_process_without_need(executor: Make, store) -> None:
    made = executor(behaviour={"start": "fail in the child"})
    assert made.device == Device() and made.environment == fakes.ENVIRONMENT


def test_processes_start_ahead_and_end_though_the_run_is_over(executor: Make) -> None:
    made = executor(gpus=("0", "1"))
    made.start()
    made.close()  # while they are starting
    for process in made._processes:
        while process in made._starting:
            time.sleep(0.05)
    assert all(not process.running for process in made._processes)

    again = executor()
    again.start()
    while again._free.qsize() < PROCESSES:
        time.sleep(0.05)
    assert all(process.running for process in again._processes)
    assert len(run(again, fakes.candidate(0))) == 1


def test_a_start_ahead_that_fails_is_told_by_the_first_job(executor: Make) -> None:
    made = executor(behaviour={"start": "fail in the child"})
    made.start()
    with pytest.raises(MeasuringFailed):
        run(made, fakes.candidate(0))


def test_each_kernel_is_compiled_once(executor: Make, log: Path) -> None:
    made = executor(behaviour={"bad": "nocompile"})
    good, bad = fakes.candidate(1, "good"), fakes.candidate(2, "bad")
    results = run(made, good, bad) + run(made, good, bad, of=fakes.workload(1))
    assert [r.measurement.ok for r in results] == [True, False, True, False]
    assert "CompileFailed" in results[1].measurement.failure
    assert sorted(kernels(log, "compile")) == ["bad", "good"]
    assert kernels(log) == ["good", "good"]


def test_a_missing_compiler_is_no_failure_of_candidates(
    executor: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*_: object) -> None:
        raise LibraryMissing("no nvcc", "nvcc")

    made = executor()
    monkeypatch.setattr(fakes.FakeMeasurer, "prepare", prepare)
    with pytest.raises(LibraryMissing):
        run(made, fakes.candidate(1, "kernel"))


def test_stopping_ends_a_job_early(executor: Make) -> None:
    made = executor()
    answers = iter([False, False, False, True])
    job = Job(fakes.workload(), tuple(fakes.candidate(i) for i in range(10)))
    assert len(list(made.run(job, lambda: next(answers)))) == 2
    assert len(run(made, fakes.candidate(0))) == 1  # the process was handed back


def test_every_process_sees_its_own_gpu(executor: Make, log: Path) -> None:
    made = executor(gpus=("3", "GPU-5f"), delay=0.3)
    jobs = [Job(fakes.workload(i), (fakes.candidate(0),)) for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(made.slots) as pool:
        found = list(pool.map(lambda job: list(made.run(job)), jobs))
    assert sum(map(len, found)) == 4
    gpus = {line.split()[4] for line in log.read_text().splitlines()}
    assert gpus == {"3", "GPU-5f"}


def test_a_gpu_is_measured_on_by_one_at_a_time_while_others_get_ready(
    executor: Make, log: Path
) -> None:
    made = executor(gpus=("0",), delay=0.3)
    jobs = [Job(fakes.workload(i), tuple(map(fakes.candidate, range(3)))) for i in range(3)]
    with concurrent.futures.ThreadPoolExecutor(made.slots) as pool:
        results = [r for found in pool.map(lambda job: list(made.run(job)), jobs) for r in found]
    assert len(results) == 9
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len({line[3] for line in lines}) == PROCESSES
    on_gpu = [(line[0], line[3]) for line in lines if line[0] in ("measure", "end")]
    for begun, ended in zip(on_gpu[::2], on_gpu[1::2], strict=True):
        assert (begun[0], ended[0]) == ("measure", "end") and begun[1] == ended[1]
    assert any(
        line[0] == "ready" and measuring[0] == "measure" and line[3] != measuring[3]
        for measuring, line in itertools.pairwise(lines)
    )


def test_waiting_for_the_gpu_does_not_count(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration is the child's own, and the timeout of a request starts within the lock."""
    process, events = MeasuringProcess(spec(), timeout_s=60.0), []
    answers = [{"ready": True}, {"measurement": {"kernel_us": 2.0}, "seconds": 0.25}]

    class Recorded:
        def ask(self, timeout_s: float, **request: object) -> dict[str, object]:
            events.append((min(request), timeout_s))
            return answers.pop(0)

    @contextlib.contextmanager
    def gpu_lock() -> Iterator[None]:
        events.append("locked")
        yield
        events.append("unlocked")

    monkeypatch.setattr(MeasuringProcess, "running", True)
    monkeypatch.setattr(process, "_child", (None, Recorded()))
    found = process.measure(fakes.workload(), fakes.candidate(0), None, gpu_lock())
    assert found == (Measurement(kernel_us=2.0), 0.25)
    assert events == [("candidate", 60.0), "locked", ("best_us", 60.0), "unlocked"]


def test_a_hang_does_not_count_against_those_that_wait(executor: Make) -> None:
    made = executor(behaviour={"eng0": "hang"}, timeout_s=2.0, delay=0.1)
    jobs = [Job(fakes.workload(i), (fakes.candidate(i),)) for i in range(3)]
    with concurrent.futures.ThreadPoolExecutor(made.slots) as pool:
        results = [r for found in pool.map(lambda job: list(made.run(job)), jobs) for r in found]
    assert [r.measurement.ok for r in results] == [False, True, True]


def test_kernels_are_compiled_while_others_are_measured(executor: Make, log: Path, store) -> None:
    """All compilations start before the first measurement ends, though they come last."""
    made = executor(delay=0.3)
    candidates = (fakes.candidate(0), fakes.candidate(1, "slow"), fakes.candidate(2, "other"))
    tuner = Tuner(
        made,
        Exhaustive(),
        store,
        lambda w: Space(w, candidates),
        kernel=fakes.FakeMeasurer().kernel,
    )
    tuner.tune([fakes.workload(i) for i in range(3)], Budget(trials=None))
    lines = [tuple(line.split()[::2][:2]) for line in log.read_text().splitlines()]
    compiled = [i for i, (what, _) in enumerate(lines) if what == "compile"]
    assert len(compiled) == 2 and compiled[1] <= 3
    assert next(kernel for what, kernel in lines if what == "measure") == "eng0"

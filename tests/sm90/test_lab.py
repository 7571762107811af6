"""The watchdog around kernels under test: hangs and crashes are reported, the others still run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from convoy.ir.workload import Workload

HERE = Path(__file__).parent
WORKLOAD = Workload("dgrad", 1, 8, 8, 8, 8, 3, 3, (2, 2), (1, 1, 1, 1))

# Answers like the worker of lab.py, misbehaving as the job's name says.
WORKER = """
import json, os, sys, time
print(json.dumps({}), flush=True)
for line in sys.stdin:
    name = json.loads(line)["name"]
    if name == "hang":
        time.sleep(60)
    if name == "crash":
        os._exit(3)
    print("noise from a library", flush=True)
    wrong = "1 element wrong" if name == "wrong" else ""
    print(json.dumps({"error": wrong, "relative": 0.5, "blocks": os.getpid()}), flush=True)
"""


@pytest.fixture
def lab(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HERE))
    module = importlib.import_module("lab")
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(module, "__file__", str(worker))
    monkeypatch.setattr(module.Job, "timeout_s", 1.0)
    monkeypatch.setattr(module.sys, "executable", sys.executable)
    return module


def outcomes(lab, *names: str) -> list[str]:
    jobs = [lab.Job(name, WORKLOAD) for name in names]
    return [result.error.split(":")[0] for _, result in lab.run(jobs)]


def test_jobs_after_a_hang_or_crash_still_run(lab):
    names = ["good", "hang", "good", "wrong", "crash", "good"]
    assert outcomes(lab, *names) == ["", "HANG", "", "1 element wrong", "CRASH", ""]


def test_a_kernel_that_broke_down_is_not_tried_again(lab):
    found = outcomes(lab, "crash", "crash", "good", "crash")
    assert found == ["CRASH", "not tried after hangs or crashes before", "", found[1]]


def test_one_worker_serves_jobs_until_a_breakdown(lab):
    jobs = [lab.Job(name, WORKLOAD) for name in ("good", "good", "crash", "good")]
    first, second, _, fourth = [result.blocks for _, result in lab.run(jobs)]
    assert first == second != fourth


def test_gives_up_after_many_breakdowns(lab, monkeypatch):
    monkeypatch.setattr(lab, "MOST_BREAKDOWNS", 9)
    monkeypatch.setattr(lab, "MOST_BREAKDOWNS_IN_ALL", 2)
    assert [e[:5] for e in outcomes(lab, "crash", "crash", "good")] == ["CRASH", "CRASH", "not t"]


def test_processes_side_by_side_keep_the_order(lab):
    names = ["good", "wrong", "crash", "good", "good", "wrong", "good"]
    jobs = [lab.Job(name, WORKLOAD, sm_count=i) for i, name in enumerate(names)]
    found = lab.run_side_by_side(jobs, workers=3)
    assert [job.sm_count for job, _ in found] == list(range(7))
    assert [result.error[:5] for _, result in found] == ["", "1 ele", "CRASH", "", "", "1 ele", ""]
    assert len({result.blocks for _, result in found if result.blocks}) == 3
    assert lab.run_side_by_side([]) == []


def test_jobs_round_trip_through_json(lab):
    job = lab.Job("name", WORKLOAD, "kernel.so", swizzle=2, sm_count=3)
    assert lab.Job.from_json(job.to_json()) == job

"""Tuning on a real GPU: kernels that fault, hang, compute nonsense or ask for too much memory are
recorded with the reason, and what comes after them is measured rightly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.gpu import faulty

from convoy.backends import registry
from convoy.ir.workload import Workload
from convoy.records.store import RecordStore
from convoy.tune.budget import Budget
from convoy.tune.local_executor import LocalExecutor, visible_gpus
from convoy.tune.measurer import Spec
from convoy.tune.search import Exhaustive
from convoy.tune.space import Space
from convoy.tune.tuner import Tuner

pytestmark = pytest.mark.gpu

WORKLOADS = [
    Workload("fprop", 8, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1)),
    Workload("fprop", 8, 28, 28, 128, 128, 1, 1),
]
REASONS = {
    "illegal_access": "illegal memory access",
    "hang": "no result after 10 s",
    "wrong": "relative L2 error",
    "out_of_memory": "memory",
}


def test_misbehaving_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    bad = [faulty.candidate(fault, tmp_path) for fault in faulty.FAULTS]
    log = tmp_path / "log"
    spec = Spec("tests.gpu.faulty:FaultyMeasurer", {"log": str(log), "backends": ["cudnn"]})
    store = RecordStore(write_to=tmp_path / "records.jsonl")
    cudnn = registry.get("cudnn")

    def propose(workload: Workload) -> Space:
        good = cudnn.propose(workload, executor.device)
        assert isinstance(good, list)
        mixed = [c for pair in zip(bad, good[:4], strict=True) for c in pair]
        return Space(workload, (*mixed, *good[4:6]))

    with LocalExecutor(spec, visible_gpus()[:1], timeout_s=10) as executor:
        tuner = Tuner(executor, Exhaustive(), store, propose)
        outcome = tuner.tune(WORKLOADS, Budget(trials=None, batch=20))
        again = tuner.tune(WORKLOADS, Budget(trials=None, batch=20))
    print(f"{outcome.measured} measured, {outcome.failed} failed in {outcome.seconds:.1f} s")
    for record in store:
        print(record.candidate.key, record.measurement.kernel_us, record.measurement.failure)
        if record.candidate.backend == faulty.BACKEND:
            assert REASONS[record.candidate.kernel] in record.measurement.failure
        else:
            assert record.measurement.ok, record.measurement.failure
    assert (outcome.measured, outcome.failed) == (20, 8)
    assert again.measured == 0
    assert max(Counter(" ".join(x.split()[:2]) for x in log.read_text().splitlines()).values()) == 1

"""The same jobs on a Ray cluster: one of this machine, with measurers that need no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tune import fakes

from convoy.errors import MeasuringFailed, NoGpu
from convoy.records.store import RecordStore
from convoy.tune.budget import Budget
from convoy.tune.job import Job
from convoy.tune.measurer import Spec
from convoy.tune.search import Exhaustive, Random
from convoy.tune.tuner import Tuner

ray = pytest.importorskip("ray")
from convoy.tune.ray_executor import RayExecutor  # noqa: E402


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two machines, as far as Ray can tell."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    options = {"log": str(tmp_path / "log"), "behaviour": {"eng4": "segv", "eng6": "lost"}}
    return Spec("tests.tune.fakes:FakeMeasurer", options)


def test_a_cluster_tunes_as_one_machine_does(cluster: str, spec: Spec, tmp_path: Path) -> None:
    store = RecordStore(write_to=tmp_path / "records.jsonl")
    workloads = [fakes.workload(i) for i in range(4)]
    with RayExecutor(spec, cluster, gpus=False, compile_jobs=1) as executor:
        tuner = Tuner(executor, Exhaustive(), store, fakes.space)
        outcome = tuner.tune(workloads, Budget(trials=10, batch=5))
        assert (outcome.measured, outcome.failed) == (40, 8)
        assert tuner.tune(workloads, Budget(trials=10)).measured == 0
        stopped = tuner.tune(workloads, Budget(trials=None, measurements=3))
        assert stopped.stopped and stopped.measured < 20
        # The executor still works after a run that was cut short.
        assert len(list(executor.run(Job(fakes.workload(9), (fakes.candidate(0),))))) == 1
    failures = {r.measurement.failure for r in store if not r.measurement.ok}
    assert len(failures) == 2 and any("SIGSEGV" in reason for reason in failures)
    assert len({line.split()[3] for line in (tmp_path / "log").read_text().splitlines()}) >= 2


def test_a_machine_that_dies_has_its_jobs_done_by_the_others(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    spec = Spec("tests.tune.fakes:FakeMeasurer", {"delay": 0.1})
    store = RecordStore(write_to=tmp_path / "records.jsonl")
    with RayExecutor(spec, cluster, gpus=False, compile_jobs=1) as executor:
        victim = next(iter(executor._load))

        class Kill(Random):
            def pick(self, tasks, count):
                ray.kill(victim)
                return super().pick(tasks, count)

        tuner = Tuner(executor, Kill(), store, fakes.space)
        outcome = tuner.tune([fakes.workload(i) for i in range(3)], Budget(trials=4))
    assert outcome.measured == 12 and len(list(store)) == 12


def test_mistakes(cluster: str, spec: Spec) -> None:
    with pytest.raises(NoGpu, match="without GPUs"):
        RayExecutor(spec, cluster)
    broken = Spec("tests.tune.fakes:FakeMeasurer", {"behaviour": {"start": "fail"}})
    with pytest.raises((MeasuringFailed, NoGpu), match="no GPU at all"):
        RayExecutor(broken, cluster, gpus=False)

"""The tuning loop: budgets, memory, being killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.tune import fakes

from convoy.errors import InvalidOption
from convoy.ir.device import Device
from convoy.records.store import RecordStore
from convoy.tune import tuner as module
from convoy.tune.budget import Budget
from convoy.tune.guided import ModelGuided
from convoy.tune.local_executor import LocalExecutor
from convoy.tune.observer import Outcome
from convoy.tune.search import Exhaustive, InOrder, Random, Search
from convoy.tune.tuner import Tuner

Make = Callable[..., LocalExecutor]
WORKLOADS = [fakes.workload(i) for i in range(3)]


def tune(executor, store, search: Search | None = None, budget: Budget | None = None, count=20):
    tuner = Tuner(executor, search or Exhaustive(), store, lambda w: fakes.space(w, count))
    return tuner.tune(WORKLOADS, budget or Budget(trials=None))


def found(store: RecordStore) -> set[tuple[str, str]]:
    return {(r.workload.key, r.candidate.kernel) for r in RecordStore(store.files)}


def test_everything_is_measured_and_recorded_once(executor: Make, store, log: Path) -> None:
    outcome = tune(executor(), store)
    assert (outcome.measured, outcome.failed, outcome.reused) == (60, 0, 0)
    assert len(found(store)) == 60
    assert max(Counter(log.read_text().splitlines()).values()) == 1
    for workload, offer in outcome.best.items():
        times = [fakes.time_us(workload, fakes.candidate(i)) for i in range(20)]
        best = fakes.time_us(workload, offer.candidate)
        assert offer.measurement.kernel_us == min(times) == best


def guided() -> Search:
    pytest.importorskip("xgboost", reason="needs the tune extra")
    return ModelGuided(Device(), seed=1)


@pytest.mark.parametrize("make", [Exhaustive, InOrder, lambda: Random(3), guided])
def test_a_second_run_measures_nothing(executor: Make, store, make) -> None:
    budget, search = Budget(trials=8, batch=3), make()
    first = tune(executor(), store, search, budget)
    assert first.measured == 24
    second = tune(executor(), store, search, budget)
    assert (second.measured, second.reused) == (0, 24)
    assert second.best == first.best


def test_budgets(executor: Make, store, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = tune(executor(), store, budget=Budget(trials=None, measurements=10))
    assert 10 <= outcome.measured <= 12  # one more in each job under way
    assert "10 measurements" in outcome.stopped
    clock = itertools.count(step=0.1)  # looked at for each result, at the least
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    slow = tune(executor(), store, budget=Budget(trials=None, seconds=1.0))
    assert slow.stopped == "1 seconds are over" and slow.measured <= 10
    for name in ("trials", "seconds", "measurements", "patience", "batch"):
        with pytest.raises(InvalidOption, match=name):
            Budget(**{name: 0})


def test_patience(executor: Make, store) -> None:
    """Candidate 7 is by far the best: nothing behind it improves on it."""
    budget = Budget(trials=None, patience=6, batch=2)
    tune(executor(), store, Exhaustive(), budget)
    tried = Counter(workload for workload, _ in found(store))
    assert all(12 <= count <= 16 for count in tried.values())


def test_failures_are_recorded_and_not_tried_again(executor: Make, store, log: Path) -> None:
    behaviour = {"eng4": "segv", "eng5": "oom", "eng6": "lost"}
    outcome = tune(executor(behaviour=behaviour), store)
    assert (outcome.measured, outcome.failed) == (60, 9)
    failures = {r.candidate.kernel: r.measurement.failure for r in store if not r.measurement.ok}
    assert failures.keys() == behaviour.keys() and all(failures.values())
    again = tune(executor(behaviour=behaviour), store)
    assert again.measured == 0
    assert max(Counter(tuple(x.split()[:3]) for x in log.read_text().splitlines()).values()) == 1


def test_the_budget_of_a_second_run_goes_on_where_the_first_stopped(executor: Make, store) -> None:
    tune(executor(), store, Random(1), Budget(trials=4))
    first = found(store)
    outcome = tune(executor(), store, Random(1), Budget(trials=10))
    assert (outcome.measured, outcome.reused) == (18, 12)
    assert first < found(store)


SCRIPT = """
import json, sys
from pathlib import Path
from convoy.ir.device import Device
from convoy.records.store import RecordStore
from convoy.tune.local_executor import LocalExecutor
from convoy.tune.guided import ModelGuided
from convoy.tune.journal import Journal
from convoy.tune.measurer import Spec
from convoy.tune.search import Random
from convoy.tune.budget import Budget
from convoy.tune.tuner import Tuner
from tests.tune import fakes

folder, search = Path(sys.argv[1]), sys.argv[2]
spec = Spec("tests.tune.fakes:FakeMeasurer", {"log": str(folder / "log"), "delay": 0.02})
searches = {"random": lambda: Random(5), "model": lambda: ModelGuided(Device(), seed=5)}
with LocalExecutor(spec, ("0",), compile_jobs=2) as executor:
    store = RecordStore(write_to=folder / "records.jsonl")
    tuner = Tuner(executor, searches[search](), store, fakes.space)
    workloads, budget = [fakes.workload(i) for i in range(4)], Budget(trials=12, batch=3)
    journal = Journal(folder / "records.jsonl", ["a run", search])
    outcome = tuner.tune(workloads, budget, journal.begin(tuner.complete(workloads, budget)))
    journal.end()
print(json.dumps([outcome.measured, outcome.reused]))
"""


def start(folder: Path, search: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{root}"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), search],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("search", ["random", "model"])
def test_killed_and_resumed(tmp_path: Path, search: str) -> None:
    """The same records as an undisturbed run, and nothing measured twice."""
    if search == "model":
        pytest.importorskip("xgboost", reason="needs the tune extra")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    undisturbed = start(whole, search)
    assert json.loads(undisturbed.communicate(timeout=120)[0]) == [48, 0]
    kills = 0
    for goal in (5, 20, 33):
        process = start(killed, search)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            path = killed / "records.jsonl"
            if path.exists() and len(RecordStore(path)) >= goal:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        process.wait()
    assert kills == 3
    before = len(RecordStore(killed / "records.jsonl"))
    measured, reused = json.loads(start(killed, search).communicate(timeout=120)[0])
    assert reused == before and measured == 48 - before

    def keys(folder: Path) -> set[tuple[str, str]]:
        return {(r.workload.key, r.candidate.kernel) for r in RecordStore(folder / "records.jsonl")}

    assert keys(killed) == keys(whole)
    assert not (killed / "records.jsonl.run").exists()
    # A kill may hit a measurement that is under way, and one whose result is on its way to the
    # file: only those are redone.
    lines = (killed / "records.jsonl").read_text().splitlines()
    assert len([line for line in lines if '"env"' in line]) == 48
    attempts = [line.split()[:3] for line in (killed / "log").read_text().splitlines()]
    attempts = [tuple(attempt) for attempt in attempts if attempt[0] == "measure"]
    assert len(attempts) <= 48 + 2 * kills


def test_outcome_is_plain_data() -> None:
    assert Outcome().best == {}

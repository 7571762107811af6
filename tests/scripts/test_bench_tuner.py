"""The replay of searches on exhaustive figures, and the spread's formula."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from convoy.backends.base import Candidate, make_config
from convoy.measure.measurement import Measurement
from convoy.measure.record import candidate_key
from convoy.tuning.search import Exhaustive, InOrder
from convoy.workload import Workload


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "scripts"))
    yield importlib.import_module("bench_tuner")
    sys.modules.pop("bench_tuner", None)


def figures(times: dict[str, list[float]]):
    found = {}
    for backend, values in times.items():
        for i, value in enumerate(values):
            candidate = Candidate(backend, f"k{i}", make_config(i=i), priority=i)
            found[candidate_key(candidate)] = candidate, Measurement(kernel_us=value)
    return found


def test_shares_of_the_best(bench: ModuleType) -> None:
    workload = Workload("fprop", 8, 14, 14, 64, 64, 1, 1)
    known = {workload: figures({"cudnn": [9.0 - i / 2 for i in range(10)], "other": [3.0] * 10})}
    reached = bench._replay(InOrder("cudnn"), [workload], known)
    # One, two and five of cuDNN's, then all ten of them: the best there is stays unseen.
    assert [reached[share][0] for share in bench.SHARES] == pytest.approx(
        [3.0 / 9.0, 3.0 / 8.5, 3.0 / 7.0, 3.0 / 4.5]
    )
    last = bench._replay(InOrder("other"), [workload], known)
    assert [last[share][0] for share in bench.SHARES] == [1.0] * 4
    assert bench._replay(Exhaustive(), [workload], known).keys() == set(bench.SHARES)


def test_median_absolute_deviation(bench: ModuleType) -> None:
    assert bench._mad([10.0, 10.0, 10.0]) == 0.0
    assert bench._mad([9.0, 10.0, 11.0, 10.0, 50.0]) == pytest.approx(0.1)
    assert math.isclose(bench._mad([1.0, 2.0]), 0.5 / 1.5)

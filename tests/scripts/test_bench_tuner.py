"""The replay of searches on exhaustive figures, and the spread's formula."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from convoy.ir.candidate import Candidate, make_config
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Epilogue, Workload
from convoy.records.record import candidate_key
from convoy.tune.search import Exhaustive, InOrder


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


def test_a_convolution_is_left_out_in_all_its_forms(bench: ModuleType) -> None:
    one = Workload("fprop", 8, 14, 14, 64, 64, 1, 1)
    changes = {"n": 256}, {"op": "wgrad"}, {"epilogue": Epilogue(bias=True, activation="relu")}
    for change in changes:
        assert bench._convolution(dataclasses.replace(one, **change)) == bench._convolution(one)
    other = dataclasses.replace(one, k=128)
    assert bench._convolution(other) != bench._convolution(one)


def test_what_is_shipped_is_out_of_sight_only_meanwhile(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", "mine")
    listed = bench.workload_list.read(bench.paths.workloads_dir() / "resnet18-fprop-float16.jsonl")
    shipped = bench.paths.records_dir()
    options = argparse.Namespace(no_prior=False, empty_cache=str(tmp_path / "kernels"))
    with bench._from_nothing(options, listed):
        rest = bench.RecordStore(bench.paths.records_dir())
        assert len(rest) and not set(rest.workloads()) & set(listed)
        assert os.environ["CONVOY_CACHE_DIR"] == options.empty_cache
    assert bench.paths.records_dir() == shipped
    assert os.environ["CONVOY_CACHE_DIR"] == "mine"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.so").touch()
    with pytest.raises(SystemExit, match="not empty"), bench._from_nothing(options, listed):
        pass


def test_median_absolute_deviation(bench: ModuleType) -> None:
    assert bench._mad([10.0, 10.0, 10.0]) == 0.0
    assert bench._mad([9.0, 10.0, 11.0, 10.0, 50.0]) == pytest.approx(0.1)
    assert math.isclose(bench._mad([1.0, 2.0]), 0.5 / 1.5)

"""The replay of searches on exhaustive measurements, and the spread's formula."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shutil
from pathlib import Path

import pytest

import bench_tuner as bench
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.record import candidate_key
from convoy.tune.search import Exhaustive, InOrder
from harness import replay


def measured(times: dict[str, list[float]]):
    found = {}
    for backend, values in times.items():
        for i, value in enumerate(values):
            candidate = Candidate(backend, f"k{i}", make_config(i=i), priority=i)
            found[candidate_key(candidate)] = candidate, Measurement(kernel_us=value)
    return found


def test_shares_of_the_best() -> None:
    workload = Workload("fprop", 8, 14, 14, 64, 64, 1, 1)
    known = {workload: measured({"cudnn": [9.0 - i / 2 for i in range(10)], "other": [3.0] * 10})}
    reached = replay.replayed(InOrder(), [workload], known)
    # One, two and five of cuDNN's, then all ten of them: the best there is stays unseen.
    assert [reached[share][0] for share in replay.SHARES] == pytest.approx(
        [3.0 / 9.0, 3.0 / 8.5, 3.0 / 7.0, 3.0 / 4.5]
    )
    known = {workload: measured({"cudnn": [3.0] * 10, "other": [9.0] * 10})}
    last = replay.replayed(InOrder(), [workload], known)
    assert [last[share][0] for share in replay.SHARES] == [1.0] * 4
    assert replay.replayed(Exhaustive(), [workload], known).keys() == set(replay.SHARES)


def test_a_convolution_is_left_out_in_all_its_forms() -> None:
    one = Workload("fprop", 8, 14, 14, 64, 64, 1, 1)
    changes = {"n": 256}, {"op": "wgrad"}, {"epilogue": Epilogue(bias=True, activation="relu")}
    for change in changes:
        assert replay._convolution(dataclasses.replace(one, **change)) == replay._convolution(one)
    other = dataclasses.replace(one, k=128)
    assert replay._convolution(other) != replay._convolution(one)


def test_shipped_records_are_hidden_only_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", "mine")
    few = tmp_path / "records"
    few.mkdir()
    for name in ("resnet18-fprop", "resnet18-dgrad"):
        shutil.copy(bench.paths.records_dir() / f"h200-{name}-float16.jsonl.gz", few)
    monkeypatch.setenv("CONVOY_RECORDS_DIR", str(few))
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


def test_median_absolute_deviation() -> None:
    assert bench._mad([10.0, 10.0, 10.0]) == 0.0
    assert bench._mad([9.0, 10.0, 11.0, 10.0, 50.0]) == pytest.approx(0.1)
    assert math.isclose(bench._mad([1.0, 2.0]), 0.5 / 1.5)


def test_synthetic_graphs_are_searched_under_every_objective() -> None:
    options = bench.parser().parse_args(["search", "--sizes", "20", "--families", "chain"])
    rows = bench.search(options)["rows"]
    assert [row["objective"] for row in rows].count("stream") == 2, "the hard case as well"
    assert all(row["optimum_us"] <= row["best_single_us"] for row in rows)

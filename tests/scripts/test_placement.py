"""The placement benchmark without a GPU: systems, choices and tables."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from harness import placement


def run(plan: str, even: list[float], odd: list[float] | None = None, **more: Any) -> Any:
    """A run of the network net, with samples of even rounds and of odd ones."""
    samples = [*even, *(odd or even)]
    return {
        "network": "net", "batch": 1, "mode": "graph", "plan": plan, "ms": median(samples),
        "spread_ms": (max(samples) - min(samples)) / 2, "even_ms": median(even),
        "even_spread_ms": (max(even) - min(even)) / 2, "odd_ms": median(odd or even),
        "differs": 0.0, **more,
    }  # fmt: skip


def test_the_search_takes_another_plan_only_beyond_the_spread() -> None:
    runs = [run("cudnn/graph", [1.00, 1.02]), run("exact/graph", [0.90, 0.92])]
    close = run("exact/graph x4", [0.89, 0.915])
    assert placement.mode_result([*runs, close], "graph").chosen == "exact/graph"
    result = placement.mode_result([*runs, run("exact/graph x4", [0.80, 0.82])], "graph")
    assert result.chosen == "exact/graph x4" and result.best_single() == "cudnn/graph"
    assert result.speedup("exact/graph") == pytest.approx(1.01 / 0.91)


def test_the_search_is_reported_by_rounds_it_did_not_choose_by() -> None:
    """A plan that was fast by chance while it was chosen is reported by its other rounds."""
    runs = [run("cudnn/graph", [1.0, 1.01]), run("exact/graph", [0.9, 0.91])]
    runs.append(run("exact/graph x4", [0.7, 0.71], odd=[0.95, 0.96]))
    result = placement.mode_result(runs, "graph")
    assert result.chosen == "exact/graph x4"
    assert result.odd["exact/graph x4"] == pytest.approx(0.955)
    rows, lines = placement.overview(runs)
    assert rows[0][6] == f"{1.005 / 0.955:.3f}x" and len(lines) == 1
    rows, (line,) = placement.overview([*runs, run("cudnn-greedy/graph", [1.1, 1.11])])
    assert rows[0][5] == f"{1.105 / 0.905:.3f}x" and "1.221x over one placed by convolution" in line
    assert rows[0][2] == "cudnn/graph", "a backend placed by convolution is no single backend here"


def test_slower_than_a_single_backend_beyond_the_spread_is_named() -> None:
    slow = [run("cudnn/graph", [1.0, 1.01]), run("exact/graph", [1.05, 1.06])]
    close = [run("cudnn/graph", [1.0, 1.02]), run("exact/graph", [1.005, 1.025])]
    runs = [r | {"network": "slow"} for r in slow] + [r | {"network": "close"} for r in close]
    _, (line,) = placement.overview(runs)
    assert line.endswith("more than the spread: slow N=1")


def test_every_plan_is_run_under_its_objective_and_the_wrong_one() -> None:
    graph = {system.name: system for system in placement.systems("graph", 8)}
    assert graph["cudnn/graph"].backends == ("cudnn", "tvm")
    assert graph["cutlass-greedy/graph"].search == "greedy"
    assert graph["evolved/graph x4"].search == "evolve" and graph["evolved/graph x4"].streams == 4
    assert graph["exact/sync"].objective == "sync" and graph["exact/sync"].mode == "graph"
    assert "tvm/any" in graph
    names = [system.name for system in placement.systems("sync", 64)]
    assert names == ["cudnn/sync", "cutlass/sync", "greedy/sync", "exact/sync", "exact/graph"]


def test_tables_have_a_row_for_each_run_and_case() -> None:
    runs = [
        run("cudnn/graph", [1.0, 1.0], predicted_ms=1.1), run("exact/graph", [0.9, 0.9]),
        run("tvm/any", [9.0, 9.0]), run("exact/graph x4", [0.8, 0.8]),
    ]  # fmt: skip
    runs.append({"network": "net", "batch": 1, "mode": "graph", "plan": "x", "failed": "no"})
    assert [row[2:] for row in placement.times(runs)][:1] == [
        ["cudnn/graph", "1.0000", "0.0000", "1.000x", "1.1000", "+10.0%", "0.0e+00"]
    ]
    times = {row["system"]: row["ms"] for row in placement.table_rows(runs)}
    assert times == {
        "cuDNN alone": 1.0, "TVM alone": 9.0, "placed": 0.9, "best single backend, 4 streams": 1.0,
        "evolutionary search, 4 streams": 0.8,
    }  # fmt: skip
    assert "| net N=1 | graph | cudnn/graph | 1.0000 | 1.111x |" in placement.markdown(runs)

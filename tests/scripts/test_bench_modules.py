"""The networks that the benchmarks time are the ones that they claim to be; runs on the CPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def test_launch_module_has_a_kernel_for_each_multiplication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import convoy

    bench = script("bench_launch", monkeypatch)
    session = convoy.build(bench.chain(20, 64), "llvm").session()
    calls: list[str] = []
    session.observe(lambda _f, name, before, *_: calls.append(name) if before else None)
    x = np.linspace(1, 2, 64, dtype="float32")
    (y,) = session(x)
    session.observe(None)
    session(x)
    assert calls.count("short_kernel") == 20
    np.testing.assert_allclose(y, x * bench.FACTOR**20, rtol=1e-5)


def test_pair_module_computes_two_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    import convoy
    from convoy import graph

    bench = script("bench_streams", monkeypatch)
    module = bench.pairs(1, 2)
    workloads = {region.workload for region in graph.find_regions(graph.normalize(module))}
    assert {(w.c, w.k, w.h, w.r) for w in workloads} == {(256, 256, 14, 3)}
    session = convoy.build(module, "llvm", precision="float32").session()
    assert bench.check(session, 1, 2) < 1e-3


def test_benchmark_goes_on_after_a_case_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = script("bench_tools", monkeypatch)
    bench = tools.Bench("trial", "")

    def broken() -> dict[str, Any]:
        raise ValueError("no such device")

    bench.run([({"form": "a"}, broken), ({"form": "b"}, lambda: {"us": 2.5})])
    assert bench.rows[1]["us"] == 2.5
    assert bench.failures() == 1
    assert "a: ValueError: no such device" in capsys.readouterr().out

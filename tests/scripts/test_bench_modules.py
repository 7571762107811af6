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
    from convoy.normalize.normal_form import normalize
    from convoy.partition.subgraphs import find_regions

    bench = script("bench_streams", monkeypatch)
    module = bench.pairs(1, 2)
    regions = find_regions(normalize(module))
    workloads = {region.workload for region in regions if not region.split}
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


@pytest.mark.parametrize("name", ["randwire", "nasnet_cell"])
def test_irregular_networks_have_branches_and_compile(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import convoy
    from convoy.partition.dataflow import dataflow

    networks = script("networks", monkeypatch)
    sizes = {"randwire": {"nodes": 8}, "nasnet_cell": {"cells": 1}}[name]
    module = getattr(networks, name)(2, channels=8, size=6, **sizes)
    operations = dataflow(module).operations
    readers = [read for op in operations for read in op.inputs]
    assert sum(readers.count(op.name) > 1 for op in operations) >= 2, "branches"
    session = convoy.build(module, "llvm").session()
    x = np.random.default_rng(0).uniform(-1, 1, (2, 6, 6, 8)).astype("float32")
    (y,) = session(x)
    assert y.shape[:3] == (2, 6, 6) and np.isfinite(y).all() and y.std() > 0.01


def test_every_network_has_a_name_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = script("networks", monkeypatch)
    assert set(networks.TORCHVISION) < set(networks.NETWORKS)
    main = networks.network("squeezenet", 3)["main"]
    assert [int(d) for d in main.params[0].ty.shape.values] == [3, 3, 224, 224]


def test_table_of_streams_shows_what_was_measured_and_what_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = script("model_streams", monkeypatch)
    facts = {"streams": 3, "decided_by": "measured", "predicted_us": 400.0, "gain": 1.5}
    facts |= {"arena_bytes": 4_100_000, "single_arena_bytes": 2_000_000}
    rows = [
        {"system": f"convoy, {way}", "model": "net", "batch": 1, "ms": 0.5, "error": 1e-4, **facts}
        for way in streams.WAYS
    ]
    rows.append({"system": "eager", "model": "net", "batch": 1, "ms": 1.62})
    rows.append({"system": "convoy", "model": "net", "batch": 8, "failed": "RuntimeError: x"})
    first, second = streams.table_rows(rows)
    assert len(first) == len(second) == len(streams.COLUMNS)
    cells = dict(zip(streams.COLUMNS, first, strict=True))
    assert cells["gain"] == "1.50x" and cells["streams, graph ms"] == "0.5000"
    assert cells["arena MB (one stream)"] == "4.1 (2.0)"
    assert cells["eager+graph ms"] == "1.620" and cells["compile ms"] is None
    assert second[2:] == (None,) * (len(streams.COLUMNS) - 2)


def test_backward_pairs_are_summed_over_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = script("bench_backward", monkeypatch)
    every = [layer for block in bench.blocks() for layer in block if layer]
    assert len(every) == 52, "ResNet-50 without its stem"
    assert [layer for layer in every if layer.channels % 8 or layer.out * layer.stride > 56] == []
    row = {"single_us": 3.0, "multi_us": 2.0, "streams": 2, "arena": 1, "single_arena": 1}
    total = bench.summed(dict.fromkeys(dict.fromkeys(every), row))
    assert (total["single_us"], total["multi_us"], total["streams"]) == (156.0, 104.0, 2)
    assert sum(layer["times"] for layer in total["layers"]) == 52
    assert "1.50x" in bench.table_row({"form": "pairs", "batch": 8, **total})

"""The benchmark of single convolutions: its lists, sums and pages; no GPU needed."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

import bench_layers
from convoy.backends.base import Backend
from convoy.errors import InvalidOption
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from harness import layer_lists, layer_report, layers


@pytest.fixture
def scripts():
    return SimpleNamespace(
        workloads=layer_lists, measure=layers, report=layer_report, main=bench_layers
    )


def test_resnet50_has_23_convolutions_of_53(scripts):
    found = list(scripts.workloads.layers(scripts.workloads.read("resnet50"), [8], ["dgrad"]))
    assert len(found) == len({layer.workload for layer in found}) == 23
    assert sum(layer.count for layer in found) == 53
    assert sum(layer.count for layer in found if not layer.is_stem) == 52
    # Forward multiplications of the network: 4.1 GFLOP an image, counted twice (mul and add).
    total = sum(layer.count * layer.workload.flops for layer in found) / 8
    assert total == pytest.approx(2 * 4.087e9, rel=0.01)


def test_pull_request_list_carries_its_times(scripts):
    data = scripts.workloads.read("tvm-pr10110")
    found = list(scripts.workloads.layers(data, [8, 256], ["dgrad", "wgrad"]))
    assert len(found) == 19 * 4
    assert all(dict(layer.reference_us).keys() == {"cutlass", "cudnn"} for layer in found)


def test_unknown_list_names_the_shipped_ones(scripts):
    with pytest.raises(InvalidOption, match="resnet50"):
        scripts.workloads.read("resnet51")


class Fake(Backend):
    """Candidates whose times are given; declines the layers named in ``without``."""

    def __init__(self, name, times, without=()):
        self.name, self.times, self.without = name, times, without

    def accepts(self, workload, device):
        return Decline(self.name, "not here") if workload.c in self.without else None

    def propose(self, workload, device):
        return self.accepts(workload, device) or [
            Candidate(self.name, kernel, priority=i) for i, kernel in enumerate(self.times)
        ]

    def build(self, workload, candidate, device):
        return self.times[candidate.kernel]


@pytest.fixture
def results(scripts, monkeypatch):
    """cuDNN: 10 us, or 20 us with the better end-to-end time; CUTLASS 8 us, no stem."""
    monkeypatch.setattr(
        scripts.measure.protocol,
        "measure",
        lambda w, c, binary, d, **k: (
            Measurement(kernel_us=binary[0], enqueue_us=1.0, e2e_us=binary[1], error=1e-4)
            if binary
            else Measurement(failure="wrong")
        ),
    )
    monkeypatch.setattr(scripts.measure.protocol, "release", lambda: None)
    backends = [
        Fake("cudnn", {"a": (12.0, 21.0), "b": (10.0, 20.0), "c": (20.0, 15.0), "bad": None}),
        Fake("cutlass", {"t": (8.0, 18.0)}, without=(3,)),
    ]

    class Peer:
        def time(self, workload):
            return {"kernel_us": 11.0, "e2e_us": 30.0} if workload["r"] == 1 else {"failure": "no"}

    bench = scripts.measure.Bench(backends, Device(), most=9, budget_ms=1.0, peer=Peer())
    data = scripts.workloads.read("resnet50")
    found = list(scripts.workloads.layers(data, [8], ["fprop", "dgrad"]))
    bench.compile(found)
    return list(bench.run(found))


def test_choices_by_both_metrics(scripts, results):
    m = scripts.measure
    inner, stem = results[1], results[0]
    assert (inner.us(m.FIRST), inner.us(m.CUDNN), inner.us(m.CUTLASS)) == (12.0, 10.0, 8.0)
    assert inner.choice(m.KERNEL_ONLY) == "cutlass:t" and inner.us(m.CONVOY) == 8.0
    assert inner.choice(m.END_TO_END) == "cudnn:c" and inner.us(m.CONVOY, m.END_TO_END) == 15.0
    assert math.isnan(stem.us(m.CUTLASS)) and stem.choice() == "cudnn:b"
    assert inner.measured == 4 and any("wrong" in failure for failure in inner.failures)


def test_totals_are_weighted_and_leave_the_stem_out(scripts, results):
    columns, rows = scripts.report.totals(results[:23])
    titles = [column.title for column in columns]
    by_name = {(row[0], row[1]): dict(zip(titles, row, strict=True)) for row in rows}
    inner = by_name["kernel-only", "52 convolutions"]
    assert inner["Convoy"] == 52 * 8.0 and inner["cuDNN best"] == 520.0
    assert inner["Convoy of cuDNN"] == pytest.approx(0.8)
    whole = by_name["kernel-only", "53 convolutions with the stem"]
    assert whole["Convoy"] == 52 * 8.0 + 10.0 and whole["CUTLASS"] is None


def test_rows_where_the_metrics_disagree(scripts, results):
    _, rows = scripts.report.disagreements(results)
    assert len(rows) == 44  # all but the two stems, which only cuDNN has
    assert rows[0][2:4] == ["cutlass", "cudnn"]


def test_strided_dgrad_is_charged_the_forward_multiplications(scripts):
    ceilings = scripts.report.Ceilings(1e30, 1e12)
    found = list(scripts.workloads.layers(scripts.workloads.read("resnet50"), [1]))
    by_op = {layer.workload.op: layer for layer in found if layer.label == "28x28 256>256 3x3/2"}
    floors = {op: ceilings.floor_us(layer) for op, layer in by_op.items()}
    assert floors["dgrad"] == floors["fprop"] == 2 * 14 * 14 * 9 * 256 * 256 / 1e6


def test_pages_survive_a_round_trip(scripts, results, tmp_path, capsys):
    ceilings = scripts.report.Ceilings(4.3e12, 790e12)
    scripts.main.write(tmp_path / "a", "Title", "How.", {"gpu": "G"}, results, ceilings)
    assert (
        scripts.main.main(["--from", str(tmp_path / "a.json"), "--out", str(tmp_path / "b")]) == 0
    )
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()
    assert json.loads((tmp_path / "b.json").read_text())["environment"] == {"gpu": "G"}
    page = (tmp_path / "a.md").read_text()
    assert "chosen by end-to-end" in page and "44 of 46" in page and "nan" not in page
    assert "56x56 64>64 3x3" in capsys.readouterr().out


def test_what_two_lists_share_is_measured_once(scripts, monkeypatch, tmp_path):
    conv = {"count": 1, "h": 8, "w": 8, "c": 64, "k": 64, "r": 3, "s": 3, "padding": [1, 1, 1, 1]}
    lists = {"one": [conv, {**conv, "k": 32}], "two": [{**conv, "count": 5}, {**conv, "k": 16}]}
    for name, convolutions in lists.items():
        data = {"name": name, "convolutions": convolutions}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    asked = []

    def measure(workload, *_, **__):
        asked.append(workload.k)
        return Measurement(kernel_us=9.0, enqueue_us=1.0, e2e_us=19.0, error=1e-4)

    monkeypatch.setattr(scripts.measure.protocol, "measure", measure)
    monkeypatch.setattr(scripts.measure.protocol, "release", lambda: None)
    monkeypatch.setattr(scripts.main.registry, "get", lambda name: Fake(name, {"a": 1}))
    monkeypatch.setattr(scripts.main, "current_device", Device)
    sources = [str(tmp_path / f"{name}.json") for name in lists]
    options = ["--ops", "dgrad", "--batches", "8", "--backends", "cudnn", "--no-torch"]
    assert scripts.main.main([*options, "--list", *sources, "--out", str(tmp_path / "out")]) == 0
    assert asked == [64, 32, 16]
    second = json.loads((tmp_path / "out-two.json").read_text())["results"]
    assert [entry["layer"]["count"] for entry in second] == [5, 1]
    assert json.loads((tmp_path / "out.json").read_text())["title"].startswith("one on")

"""The whole way: a model file in, records out, which placement then picks up. No GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tune import fakes
from typer.testing import CliRunner

import convoy
from convoy.backends import registry
from convoy.backends.cudnn import cudnn_version
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.cli.main import app
from convoy.cli.workloads import find_workloads
from convoy.errors import CacheUnwritable, InvalidOption, InvalidWorkload, LibraryMissing, NoGpu
from convoy.frontend import model_file as models
from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.pipeline import place, workloads_of
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.records.store import RecordStore
from convoy.tune import autotune as module
from convoy.tune.autotune import autotune
from convoy.tune.budget import Budget
from convoy.tune.gpu_measurer import GpuMeasurer
from convoy.tune.measurer import Spec

RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 64, 14, 14), float32], %weight: Tensor[(64, 64, 3, 3), float32],
          %second: Tensor[(128, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%data, %weight, strides=[2, 2], padding=[1, 1, 1, 1], channels=64,
                 kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  nn.conv2d(%1, %second, padding=[0, 0, 0, 0], channels=128, kernel_size=[1, 1])
}
"""

pytestmark = pytest.mark.skipif(not cudnn_version(), reason="cuDNN is not installed")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.relay"
    path.write_text(RELAY)
    return path


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, log: Path) -> Spec:
    """An H200, as far as the tuner can tell."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.setattr(module, "visible_gpus", lambda: ["0"])
    options = {"log": str(log), "gpu": Device().name}
    return Spec("tests.tune.fakes:FakeMeasurer", options)


def test_placement_takes_what_was_found(model: Path, h200: Spec, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    relax = models.read(model)
    workloads = workloads_of(relax, backends=["cudnn"], device=Device())
    outcome = autotune(
        workloads,
        records=records,
        backends=["cudnn"],
        search="random",
        budget=Budget(trials=5),
        spec=h200,
    )
    assert outcome.measured == 5 * len(workloads) and not outcome.failed
    plan = place(
        relax, backends=["cudnn", "tvm"], records=records, device=Device(), measure=False
    ).plan
    assert len(plan.choices) == 2
    for choice in plan.choices:
        offer = outcome.best[choice.workload]
        assert choice.chosen.candidate.key == offer.candidate.key
        assert choice.chosen.measurement.kernel_us == offer.measurement.kernel_us


def test_the_command(model: Path, h200: Spec, tmp_path: Path, monkeypatch) -> None:
    """Of a model, then of a list: the second run finds everything in the records."""
    monkeypatch.setattr(module, "Spec", lambda **_: h200)
    records, listed = tmp_path / "records.jsonl", tmp_path / "list.jsonl"
    common = ["--records", str(records), "--backends", "cudnn", "--search", "order"]
    first = CliRunner().invoke(app, ["tune", str(model), *common, "--trials", "3", "--json"])
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    assert report["measured"] == 3 * report["workloads"] > 0
    workloads = workloads_of(models.read(model), device=Device())
    written = CliRunner().invoke(app, ["tune", str(model), "--write-list", str(listed)])
    assert written.exit_code == 0 and f"{len(workloads)} workloads" in written.stdout
    assert workload_list.read(listed) == workloads
    second = CliRunner().invoke(app, ["tune", str(listed), *common, "--trials", "3"])
    assert second.exit_code == 0, second.output
    assert " 0 measured" in second.stdout
    assert f"{3 * len(workloads)} taken from records" in second.stdout
    third = CliRunner().invoke(app, ["tune", str(listed), *common, "--trials", "4", "--json"])
    assert json.loads(third.stdout)["measured"] == len(workloads)


def test_records_of_other_backends_do_not_count(h200: Spec, tmp_path: Path) -> None:
    """A run for one library measures although another library's records would be enough."""
    options = {"records": tmp_path / "r.jsonl", "search": "order", "spec": h200}
    budget = Budget(trials=2)
    store = RecordStore(write_to=tmp_path / "r.jsonl")
    shape = Workload("fprop", 8, 14, 14, 96, 72, 3, 3, padding=(1, 1, 1, 1))  # ships with no record
    other = dataclasses.replace(h200.make().describe()[1], cudnn="", cutlass="4.2.0")
    for i in range(3):
        store.append(Record(shape, Candidate("cutlass", f"k{i}"), Measurement(kernel_us=1), other))
    outcome = autotune([shape], backends=["cudnn"], budget=budget, **options)
    assert (outcome.measured, outcome.reused) == (2, 0)
    assert outcome.best[shape].candidate.backend == "cudnn"
    again = autotune([shape], backends=["cudnn"], budget=budget, **options)
    assert (again.measured, again.reused) == (0, 2)


def test_a_run_with_nothing_to_measure_loads_little(h200: Spec, tmp_path: Path) -> None:
    """NumPy, xgboost, TVM and, through tvm_ffi, PyTorch would be most of its time."""
    records, listed = tmp_path / "records.jsonl", tmp_path / "list.jsonl"
    workload_list.write(listed, [fakes.workload()])
    autotune([fakes.workload()], records=records, budget=Budget(trials=3), spec=h200)
    program = f"""
import sys
from pathlib import Path
from convoy.cli import tune as command
from convoy.ir.device import Device
from convoy.measure import gpu
from convoy.records import probe
from convoy.tune import autotune
gpu.find_gpus = lambda: ([Device("NVIDIA H200", 90, 132, 232448, 1 << 25, 1 << 37)], "")
gpu.driver_version = lambda: "{fakes.ENVIRONMENT.driver}"
probe.opened_version = lambda *_: "{fakes.ENVIRONMENT.cudnn}"
autotune.visible_gpus = lambda: ["0"]
command.tune([Path({str(listed)!r})], trials=3, records=Path({str(records)!r}))
print([name for name in ("numpy", "xgboost", "tvm_ffi", "tvm") if name in sys.modules])
"""
    path = os.pathsep.join(map(str, [Path(__file__).parents[2], Path(convoy.__file__).parents[1]]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert " 0 measured" in done.stdout and "3 taken from records" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_neighbours_are_tried(h200: Spec, tmp_path: Path) -> None:
    """With more trials than proposals, configurations around the best are measured."""
    # The simulated times favour engine 67, which has knobs to turn.
    workload = Workload("dgrad", 8, 28, 28, 128, 128, 3, 3, padding=(1, 1, 1, 1))
    outcome = autotune(
        [workload],
        records=tmp_path / "records.jsonl",
        backends=["cudnn"],
        search="exhaustive",
        budget=Budget(trials=None, batch=16),
        spec=h200,
    )
    proposed = registry.get("cudnn").propose(workload, Device())
    assert outcome.measured > len(proposed)
    names = [r.candidate.key for r in RecordStore(tmp_path / "records.jsonl")]
    assert len(set(names)) == len(names)


def test_mistakes(tmp_path: Path, h200: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    records = tmp_path / "r.jsonl"
    with pytest.raises(InvalidOption, match="search 'best'"):
        autotune([fakes.workload()], records=records, search="best", spec=h200)
    with pytest.raises(InvalidOption, match="gpus = 2"):
        autotune([fakes.workload()], records=records, gpus=2, spec=h200)
    monkeypatch.setattr(module, "visible_gpus", list)
    with pytest.raises(NoGpu):
        autotune([fakes.workload()], records=records, spec=h200)
    with pytest.raises(InvalidOption, match="search 'best'"):  # told without a GPU too
        autotune([fakes.workload()], records=records, search="best")
    with pytest.raises(InvalidOption, match="'cublas'"):
        autotune([fakes.workload()], records=records, backends=["cublas"])
    with pytest.raises(CacheUnwritable, match="it is a folder"):
        autotune([fakes.workload()], records=tmp_path, spec=h200)
    listed = tmp_path / "one.jsonl"
    workload_list.write(listed, [fakes.workload()])
    for options, message in (("--batch 4", "--batch 4"), ("--contains n9", "such as fprop.n8")):
        result = CliRunner().invoke(app, ["tune", str(listed), *options.split()])
        assert isinstance(result.exception, InvalidOption)
        assert message in str(result.exception)
    result = CliRunner().invoke(app, ["tune", str(tmp_path / "nothing.jsonl")])
    assert isinstance(result.exception, InvalidOption)
    (tmp_path / "bad.jsonl").write_text("{}\nnot json\n")
    message = r"bad.jsonl, line 1: workload without 'op'; expected the fields op, n"
    with pytest.raises(InvalidWorkload, match=message):
        workload_list.read(tmp_path / "bad.jsonl")


def test_without_xgboost(h200: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(LibraryMissing, match=r"pip install .*\[tune\]"):
        autotune([fakes.workload()], records=tmp_path / "r.jsonl", spec=h200)


def test_kernels_that_are_not_compiled_can_be_left_out(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path))
    try:
        find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    monkeypatch.setattr("convoy.backends.kernels.shipped.archives", tuple)  # none
    candidates = registry.get("cutlass").propose(fakes.workload(), Device())
    assert not any(registry.get("cutlass").is_ready(c) for c in candidates)
    measurer = GpuMeasurer(["cutlass"])
    names = {measurer.kernel(c) for c in candidates}
    assert "" not in names and len(names) <= len(candidates)


def test_parallel_branches_are_listed_as_one_convolution(tmp_path: Path) -> None:
    """Two filters of one shape read the same value: each for itself, and both together."""
    path = tmp_path / "branches.relay"
    path.write_text(
        """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 64, 14, 14), float32], %a: Tensor[(32, 64, 1, 1), float32],
          %b: Tensor[(48, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%data, %a, channels=32, kernel_size=[1, 1], padding=[0, 0, 0, 0]);
  %1 = nn.conv2d(%data, %b, channels=48, kernel_size=[1, 1], padding=[0, 0, 0, 0]);
  (%0, %1)
}
"""
    )
    for joint, outputs in ((False, [32, 48]), (True, [32, 48, 80])):
        found = find_workloads([path], None, None, "float16", joint)
        assert sorted(w.k for w in found) == outputs


def test_workload_lists(tmp_path: Path) -> None:
    workloads = [fakes.workload(i) for i in range(3)]
    path = tmp_path / "list.jsonl"
    assert workload_list.write(path, [*workloads, workloads[0]]) == 3
    assert workload_list.read(path) == workloads
    shipped = list((Path(__file__).parents[2] / "tuning" / "workloads").glob("*.jsonl"))
    assert len(shipped) >= 8
    others = {
        "resnet50-training": {8, 64},
        "stems-fprop": {1, 8, 64},
        "inverted-residuals-fprop": {1, 8, 32, 64},
        "squeeze-excite-fprop": {1, 8, 32},
        "bottlenecks-fprop": {1, 2, 4, 8, 16, 32, 64, 256},
    }
    for one in shipped:
        batches = {w.n for w in workload_list.read(one) if w.op != "matmul"}
        assert batches == others.get(one.name.removesuffix("-float16.jsonl"), {1, 8, 32, 256})


def test_records_of_one_gpu_teach_another_one(tmp_path: Path) -> None:
    """Each workload's samples are of one GPU: of the one to tune for where it has been measured."""
    here, there = (dataclasses.replace(fakes.ENVIRONMENT, gpu=name) for name in ("here", "there"))
    first, second, tuned = (Workload("fprop", n, 7, 7, 64, 64, 3, 3) for n in (1, 2, 3))
    fast, slow = Candidate("cudnn", "eng1"), Candidate("cudnn", "eng2")

    def records(workload: Workload, environment: Environment, *us: float) -> list[Record]:
        pairs = zip((fast, slow), us, strict=False)
        return [Record(workload, c, Measurement(t, samples=9), environment) for c, t in pairs]

    store = RecordStore(write_to=tmp_path / "own.jsonl")
    store.extend(records(first, there, 1.0, 2.0) + records(first, here, 3.0))
    store.extend(records(second, there, 4.0, 5.0) + records(tuned, here, 6.0))
    found = module.prior_samples(store, here, [tuned])
    assert {s.workload.n: [m.kernel_us for _, m in s.measurements] for s in found} == {
        1: [3.0], 2: [4.0, 5.0],
    }  # fmt: skip

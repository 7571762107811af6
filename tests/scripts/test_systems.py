"""Convoy's systems from placement to a table, on the CPU with TVM's llvm target."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax

import bench_networks
import convoy
from harness import networks, peers, systems, training
from harness.systems import System

# Not "graph": the CPU has no CUDA graphs.
ONE, SEVERAL = System("one", mode="stream"), System("several", streams="auto", mode="stream")
SYNC, BROKEN = System("sync", mode="sync"), System("broken", ("cutlass", "tvm"), mode="stream")


def small(batch: int) -> Any:
    """y = relu(conv(x)) of ones, 4x4 with 8 channels."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, 4, 4, 8), "float32"))
    w = relax.const(np.ones((8, 1, 1, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = relax.op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI")
            y = builder.emit_output(builder.emit(relax.op.nn.relu(builder.emit(y))))
        builder.emit_func_output(y)
    return builder.get()


def exact(batch: int, inputs: list[Any]) -> list[Any]:
    sums = inputs[0].astype("float64").sum(3, keepdims=True)
    return [np.repeat(np.maximum(sums, 0), 8, axis=3)]


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The backends of every placement; builds are for llvm, with a plan that places nothing."""
    found: list[tuple[str, ...]] = []
    build = convoy.build

    def place(module: Any, *, backends: tuple[str, ...], **_: Any) -> Any:
        found.append(backends)
        if "cudnn" not in backends:
            raise RuntimeError("declined")
        return SimpleNamespace(plan=SimpleNamespace(**vars(plan), dumps=lambda: "{}"))

    def fake_build(module: Any, target: str, **_: Any) -> Any:
        return build(module, "llvm")

    plan = SimpleNamespace(backends=lambda: {"cudnn": 1}, choices=[], total_us=lambda: 2.0)
    monkeypatch.setattr(convoy, "place", place)
    monkeypatch.setattr(convoy, "build", fake_build)
    monkeypatch.setattr("convoy.ir.plan.Plan.loads", lambda text: plan)
    network = networks.Network(small, exact=exact)
    monkeypatch.setitem(networks.NETWORKS, "small", network)
    monkeypatch.setattr(systems, "ready", lambda: None)
    return found


def test_systems_are_placed_once_compared_and_timed(placed: list[Any], tmp_path: Path) -> None:
    chosen, options = [ONE, SEVERAL, SYNC, BROKEN], {"seconds": 0.01, "halves": True}
    systems.build("small", 2, chosen, tmp_path, options)
    assert placed == [systems.ALL, ("cutlass", "tvm")], "one placement for equal choices"
    systems.build("small", 2, [ONE, SEVERAL, SYNC], tmp_path, options)
    assert len(placed) == 2, "compiled modules are not compiled again"
    one, several, synchronized, broken = systems.time_systems("small", 2, chosen, tmp_path, options)
    assert broken["failed"] == "RuntimeError: declined" and "ms" not in broken
    for row in (one, several, synchronized):
        assert row["ms"] > 0 and row["odd_ms"] > 0 and row["backends"] == {"cudnn": 1}
        assert row["error"] < 1e-5 and row["differs"] == 0.0
    assert [one["mode"], synchronized["mode"]] == ["stream", "sync"]


def test_a_system_with_wrong_outputs_is_not_timed(
    placed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = networks.Network(small, exact=lambda n, inputs: [1.1 * y for y in exact(n, inputs)])
    monkeypatch.setitem(networks.NETWORKS, "small", wrong)
    systems.build("small", 2, [ONE], tmp_path, {})
    (row,) = systems.time_systems("small", 2, [ONE], tmp_path, {"seconds": 0.01})
    assert "relative error 9.1e-02" in row["failed"] and "ms" not in row


def test_a_worker_gets_its_task_and_environment(placed: list[Any], tmp_path: Path) -> None:
    process = systems.worker("small", 2, [dataclasses.replace(ONE, mode="sync")], tmp_path, {})
    task = json.loads(process._command[-1])
    assert System.from_json(task["systems"][0]).backends == systems.ALL
    assert task["task"] == "build" and process._environment["CUDA_LAUNCH_BLOCKING"] == "1"
    (row,) = systems.work({**task, "options": {"build_only": True}})
    assert row["system"] == "one" and "failed" not in row


def test_errors_of_probabilities_are_those_of_their_logits() -> None:
    want = np.array([[0.2, 0.8]])
    assert systems.logit_error(want, want) == 0.0
    assert systems.logit_error(3 * want, want) == pytest.approx(0.0), "up to a constant"
    assert systems.logit_error(np.array([[0.5, 0.5]]), want) == pytest.approx(1.0)


def test_peers_skip_networks_that_they_lack() -> None:
    assert "skipped" in peers.work("xla", "resnet50", 1)[0]
    assert "skipped" in peers.work("half", "resnet50", 1)[0]
    assert "skipped" in peers.work("eager", "randwire", 1)[0]


def test_a_training_step_with_other_losses_has_no_time() -> None:
    reference = {"system": training.PEERS["float32"], "batch": 8, "losses": [2.0, 1.0]}
    half = {"system": training.PEERS["half"], "batch": 8, "ms": 3.0, "losses": [2.0, 1.01]}
    right = {"system": "placed", "batch": 8, "ms": 1.0, "losses": [2.0, 1.02]}
    wrong = {"system": "streams", "batch": 8, "ms": 1.0, "losses": [2.0, 1.2]}
    training.check([reference, half, right, wrong])
    assert right["ms"] == 1.0 and "failed" not in right and "failed" not in half
    assert wrong["failed"].startswith("loss 1.2000 at step 1") and "ms" not in wrong


def test_modes_that_need_another_environment_have_a_process_of_their_own() -> None:
    args = bench_networks.parser().parse_args(["placement"])
    timed, synchronized = bench_networks.groups(args, 8)
    assert {system.mode for system in timed} == {"graph", "stream"}
    assert {system.mode for system in synchronized} == {"sync"}
    options = ["--systems", "cudnn", "placed", "eager", "--backends", "cudnn", "cutlass", "tvm"]
    args = bench_networks.parser().parse_args(["inference", *options])
    ((cudnn, all_of_them),) = bench_networks.groups(args, 8)
    assert cudnn.backends == ("cudnn", "tvm")
    assert all_of_them.backends == ("cudnn", "cutlass", "tvm")


def test_details_show_what_is_known() -> None:
    row = {"model": "net", "batch": 1, "system": "streams", "backends": {"cudnn": 3}}
    cells = dict(zip(bench_networks.DETAILS, bench_networks.details(row), strict=True))
    assert cells["ms"] is None and cells["kernels of"] == "cudnn=3"
    row |= {"ms": 0.5, "arena_bytes": 4_100_000, "single_arena_bytes": 2_000_000, "error": 1e-4}
    cells = dict(zip(bench_networks.DETAILS, bench_networks.details(row), strict=True))
    assert cells["ms"] == "0.5000" and cells["arena MB (one stream)"] == "4.1 (2.0)"
    assert cells["error"] == "1e-04"

"""Times of one family's kernels, with stand-ins for the backend and the measuring process."""

from __future__ import annotations

from typing import Any

import pytest

import bench_kernels
from convoy import runtime
from convoy.backends import load, registry
from convoy.backends.base import Backend, Binary
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.measure import protocol
from convoy.tune import process
from harness import torch_layers


class Family(Backend):
    """Two kernels for every convolution but the stem, which it declines."""

    name = "family"
    prepared: list[Any] = []

    def accepts(self, workload: Any, device: Device) -> Decline | None:
        return Decline(self.name, "a stem") if workload.c == 3 else None

    def propose(self, workload: Any, device: Device) -> Any:
        kernels = ("slow", "fast", "broken")
        return self.accepts(workload, device) or [Candidate(self.name, k) for k in kernels]

    def build(self, workload: Any, candidate: Candidate, device: Device) -> Binary:
        raise AssertionError("built by the measuring process")

    def prepare(self, jobs: Any, device: Device) -> None:
        self.prepared += jobs


class Measuring:
    """A measuring process that knows the times."""

    def __init__(self, spec: Any) -> None:
        assert spec.options == {"backends": ["family"], "cold": False}

    def describe(self) -> Any:
        return Device(), None

    def measure(self, workload: Any, candidate: Candidate, best_us: Any) -> Any:
        if candidate.kernel == "broken":
            return Measurement(failure="wrong"), 0.1
        us = {"slow": 20.0, "fast": 5.0}[candidate.kernel]
        return Measurement(kernel_us=us, kernel_spread_us=0.1, error=1e-4), 0.1

    def close(self) -> None:
        pass


class Peer:
    def time(self, workload: Any) -> Any:
        return {"kernel_us": 10.0}

    def close(self) -> None:
        pass


def test_kernels_of_a_layer_are_sorted_beside_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "get", lambda name: Family())
    monkeypatch.setattr(process, "MeasuringProcess", Measuring)
    monkeypatch.setattr(torch_layers, "Torch", Peer)
    asked = ["times", "--backend", "family", "--ops", "dgrad", "--batches", "8", "--layer", "7x7"]
    assert bench_kernels.main(asked) == 1, "one kernel is wrong"
    printed = capsys.readouterr().out
    assert "dgrad.n8h224w224c3k64" in printed and "a stem" in printed
    assert "kernel: broken" not in printed and "not measured: dgrad, 8, 7x7" in printed
    lines = [line.split() for line in printed.splitlines() if line.startswith(("fast", "slow"))]
    first, second, *_ = lines
    assert first[:2] == ["fast", "5.00"] and first[5] == "0.50"
    assert second[:2] == ["slow", "20.00"] and second[5] == "2.00"
    assert {candidate.kernel for _, candidate in Family.prepared} == {"slow", "fast", "broken"}


def test_kernels_are_launched_once_on_every_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def error_of(problem: Any, call: Any) -> float:
        return 1.0 if call == "broken" else 1e-4

    def build(self: Family, workload: Any, candidate: Candidate, device: Device) -> Binary:
        return Binary({"kernel": candidate.kernel}, {})

    def create_module(entries: Any, *_: Any, **__: Any) -> Any:
        return {entries[0]["symbol"]: entries[0]["kernel"]}

    monkeypatch.setattr(Family, "build", build)
    monkeypatch.setattr(registry, "get", lambda name: Family())
    monkeypatch.setattr(runtime, "current_device", Device)
    monkeypatch.setattr(load, "create_module", create_module)
    monkeypatch.setattr(protocol, "make_problem", lambda workload, rng: workload)
    monkeypatch.setattr(protocol, "error_of", error_of)
    assert bench_kernels.main(["once", "--ops", "fprop", "dgrad", "--backends", "family"]) == 1
    printed = capsys.readouterr().out.splitlines()
    taken = [change for change in bench_kernels.CHANGES if change.get("c") != 3]
    assert sum(line.startswith("right") for line in printed) == 2 * 2 * len(taken)
    assert printed[-1] == f"{2 * len(taken)} wrong"

"""Times of one family's kernels, with stand-ins for the backend and the measuring process."""

from __future__ import annotations

from typing import Any

import pytest

import bench_kernels
from convoy.backends import registry
from convoy.backends.base import Backend, Binary
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
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

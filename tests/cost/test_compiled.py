"""By default only kernels that are compiled already count, but where nothing else computes an
operation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from tvm.relax import op

import convoy
from convoy.backends.base import Backend, Binary
from convoy.backends.tvm import TvmBackend
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload

from ..graph.nets import Net


class Compiler(Backend):
    """A kernel for each epilogue, of which some are compiled."""

    name = "compiler"

    def __init__(self, ready: Collection[str]) -> None:
        self.compiled = ready

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        return [Candidate(self.name, workload.epilogue.name or "none")]

    def is_ready(self, candidate: Candidate) -> bool:
        return candidate.kernel in self.compiled

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        return Binary({}, {})

    def prepare(self, jobs: object, device: Device) -> Mapping[object, object]:
        return {}


def chosen(ready: Collection[str], kernels: str, search: str) -> list[str]:
    """Kernels of a plan for a convolution with bias and SiLU behind one without."""
    net = Net((1, 16, 14, 14))
    y = net.conv(net.conv(net.x, 16, 3), 16, 3, bias=True)
    plan = convoy.place(
        net.finish(net.emit(op.nn.silu(y))), backends=(Compiler(ready), TvmBackend()),
        kernels=kernels, search=search, device=Device(),
    ).plan  # fmt: skip
    return [choice.chosen.candidate.kernel for choice in plan.choices]


@pytest.mark.parametrize(
    ("ready", "kernels", "expected"),
    [
        (["none", "bias", "bias_silu"], "shipped", ["none", "bias_silu"]),
        (["none", "bias"], "shipped", ["none", "bias"]),  # less is fused
        (["none"], "shipped", ["none", "none"]),
        (["bias"], "shipped", ["none", "bias"]),  # the first one is compiled
        ([], "shipped", ["none", "bias_silu"]),
        (["none", "bias"], "all", ["none", "bias_silu"]),
    ],
)
def test_less_is_fused_before_a_compiler_runs(
    ready: Collection[str], kernels: str, expected: list[str]
) -> None:
    assert chosen(ready, kernels, "greedy") == expected
    # An exact search may leave a bias to TVM's kernel behind.
    fused = [kernel == "bias_silu" for kernel in chosen(ready, kernels, "exact")]
    assert fused == [kernel == "bias_silu" for kernel in expected]

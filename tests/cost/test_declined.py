"""A backend that accepts a fused convolution and has no kernel for it is asked for less."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm.relax import op

import convoy
from convoy.backends.base import Backend
from convoy.backends.tvm import TvmBackend
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload

from ..graph.nets import Net


class NoActivations(Backend):
    """Like cuDNN without a driver: which epilogues it has is known once it is asked."""

    name = "plain"

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        if workload.epilogue.activation not in ("none", "relu"):
            return Decline(self.name, "no engine", "fuse less")
        return [Candidate(self.name, "engine")]

    def build(self, workload: Workload, candidate: Candidate, device: Device):  # type: ignore[no-untyped-def]
        raise NotImplementedError


@pytest.mark.parametrize("search", ["greedy", "exact"])
@pytest.mark.parametrize("residual", [False, True])
def test_the_convolution_stays_with_the_backend(search: str, residual: bool) -> None:
    net = Net((1, 16, 14, 14))
    y = net.emit(op.nn.silu(net.conv(net.x, 16, 3, bias=True)))
    mod = net.finish(net.add(y, net.x) if residual else y)
    plan = convoy.place(
        mod, backends=(NoActivations(), TvmBackend()), search=search, device=Device()
    ).plan
    (choice,) = plan.choices
    assert (choice.chosen.candidate.backend, choice.workload.epilogue.name) == ("plain", "bias")

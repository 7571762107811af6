"""Networks on a GPU whose plans are made to use a fused kernel wherever there is one."""

from __future__ import annotations

import copy

import pytest

import convoy
from convoy.cost.model import CostModel
from convoy.ir.measurement import Measurement

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

LIMIT = {"float16": 6e-3, "bfloat16": 5e-2}


class JointIsFaster(CostModel):
    """Less time for workloads of several convolutions or products together than for one."""

    source = "made"

    def __init__(self, is_joint):
        self.is_joint = is_joint

    def measurements(self, workload, candidates):
        us = 1.0 if self.is_joint(workload) else 4.0
        return [Measurement(kernel_us=us, enqueue_us=2.0, e2e_us=us + 8) for _ in candidates]


def compile_and_check(network, dtype, is_joint):
    """Compile a network of 3x60x60 images, and compare its results with float64.

    Args:
        network: In float32; becomes its own reference.
        dtype: In which it is compiled.
        is_joint: Whether a workload is of a fused kernel, which then costs less.

    Returns:
        The workloads of the plan that are, in its order.
    """
    options = {"backends": ("hopper", "tvm"), "costs": JointIsFaster(is_joint), "streams": 1}
    exact = network.double().cuda()
    net = copy.deepcopy(exact).to(getattr(torch, dtype))
    exact.load_state_dict(net.state_dict())
    images = torch.randn(12, 4, 3, 60, 60, device="cuda").to(getattr(torch, dtype))
    with torch.no_grad():
        compiled = convoy.compile(net, images[0], cache=False, **options)
        assert compiled.plan is not None
        joint = [c.workload for c in compiled.plan.choices if is_joint(c.workload)]
        for x in images:  # a call, a capture, replays
            got, want = compiled(x).double(), exact(x.double())
            assert float((got - want).norm() / want.norm()) < LIMIT[dtype]
    return joint

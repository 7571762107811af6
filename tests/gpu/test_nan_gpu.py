"""relu, clip, max and min of NaN on a GPU, alone and behind convolutions of each backend."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm_ffi

import convoy
from convoy.backends import registry
from convoy.backends.load import load_candidate
from convoy.ir.candidate import Decline
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure.problem import make_problem
from convoy.runtime import current_device
from convoy.runtime.library import function

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


class Net(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x):
        pooled = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        return (
            torch.relu(x), x.clamp(-1, 2), torch.maximum(x, -x), torch.minimum(x, x * 0.5),
            x.amax(1), x.amin((2, 3), keepdim=True), pooled, torch.nn.functional.relu6(x) + x,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(2, 16, 9, 11), (1, 7, 130, 5), (3, 300, 1, 2)])
def test_as_pytorch(shape, dtype):
    torch.manual_seed(sum(shape))
    x = torch.randn(shape)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])[torch.randint(4, shape)]
    x = torch.where(torch.rand(shape) < 0.05, special, x).to("cuda", dtype)
    net = Net().eval()
    for got, want in zip(convoy.compile(net, (x,))(x), net(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("activation", ["relu", "clip"])
@pytest.mark.parametrize("backend", ["cudnn", "cutlass", "hopper", "depthwise"])
def test_behind_a_convolution(backend, activation):
    """Own and CUTLASS kernels keep NaN; cuDNN's engines are only counted."""
    device = current_device()
    epilogue = Epilogue(bias=True, activation=activation, clip_min=0.0, clip_max=6.0)
    fields = {"n": 1, "h": 16, "w": 16, "c": 64, "k": 64, "r": 3, "s": 3, "padding": (1,) * 4}
    if backend == "hopper":
        fields |= {"c": 4, "r": 7, "s": 7, "stride": (2, 2), "padding": (3,) * 4}
    workload = Workload(
        "fprop", **fields, groups=64 if backend == "depthwise" else 1, epilogue=epilogue
    )
    (found,) = registry.get(backend).propose_all([workload], device, compiled=backend != "cudnn")
    if isinstance(found, Decline):
        pytest.skip(found.reason)
    kept = []
    for candidate in found[:12]:
        call = load_candidate(registry.get(backend), workload, candidate, device)
        problem = make_problem(workload, np.random.default_rng(0))
        function("cuda.fill")(problem.tensors[0], 0xFF)
        function("measure.call")(call, problem.tensors, 0)
        (output,) = problem.outputs.values()
        stored = np.empty(math.prod(output.shape), np.float16)
        function("cuda.copy")(output, tvm_ffi.from_dlpack(stored))
        kept.append(bool(np.isnan(stored).all()))
    print(f"{backend} {activation}: {sum(kept)} of {len(kept)} kernels keep NaN")
    assert backend == "cudnn" or all(kept)

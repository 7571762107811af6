"""A training step as it is lowered for a GPU, run on the CPU: kernels by emulation, offloaded
regions by numpy. Shows fusion, statistics, grouped updates and the state in place to be right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from convoy.lower.executable import lower_calls
from convoy.lower.passes import memory_passes
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs
from convoy.tir import channel_sums
from convoy.training import Network, Sgd, small_resnet
from convoy.training.resnet import basic_blocks

from ..emulation.kernels import emulated, turns
from ..graph.numpy_kernels import register
from ..helpers.longest import longest
from .reference import descend
from .test_step import RATE, batches

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


def executable(step, dtype):
    """The step as a function of the virtual machine."""
    normal = normalize(step.module, dtype=dtype)
    chosen = longest(find_subgraphs(normal), lambda w: w.op != "matmul")
    mod = rewrite(normal, {r.id: register(r.workload) for r in chosen})
    mod = lower_calls(mod, TARGET)
    unchecked = tvm.transform.PassContext(config={"tirx.disable_assert": True})
    with emulated(), TARGET, unchecked:  # kernels for CUDA take tensors of the CPU
        mod = tvm.transform.Sequential(memory_passes())(mod)
        built = tvm.compile(mod, TARGET, relax_pipeline=None)
    return relax.VirtualMachine(built, tvm.cpu())["main"]


def pooled(net):
    x = net.relu(net.batch_norm(net.conv(net.x, 8, 3, 1, name="a"), name="an"))
    x = net.max_pool(x, 3, 2, 1)
    y = net.batch_norm(net.conv(x, 8, 3, 1, dilation=2, groups=2, name="b"), name="bn")
    return net.dense(net.mean(net.relu(net.add(x, y))), 10, name="classifier")


def pooled_network():
    net = Network(4, 8, 8, 3)
    return net.finish(pooled(net))


CASES = {
    "norms": (
        lambda: small_resnet(4, image=6, channels=3, widths=(8, 12)),
        lambda tape: basic_blocks(tape, (8, 12), 10, True), 6,
    ),
    "biases": (
        lambda: small_resnet(4, image=6, channels=3, widths=(8, 12), norm=False),
        lambda tape: basic_blocks(tape, (8, 12), 10, False), 6,
    ),
    "pool": (pooled_network, pooled, 8),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "dtype", "block_bytes"),  # statistics of more bytes a block take two kernels
    [
        ("norms", "float32", 128 << 10),
        ("norms", "float32", 256),
        ("norms", "float16", 128 << 10),
        ("biases", "float32", 128 << 10),
        ("pool", "float32", 256),
        ("pool", "float16", 128 << 10),
    ],
)
def test_step(case, dtype, block_bytes, monkeypatch):
    monkeypatch.setattr(channel_sums, "_BLOCK_BYTES", block_bytes)
    make, build, image = CASES[case]
    net, optimizer = make(), Sgd(0.9, 1e-3)
    step = net.step(optimizer)
    main = executable(step, dtype)
    state = [tvm.runtime.tensor(v) for v in step.initial_state(net.initial)]
    want = {k: v.astype(np.float64) for k, v in net.initial.items()}
    limit = 2e-4 if dtype == "float32" else 3e-2
    rate = tvm.runtime.tensor(np.asarray(RATE, np.float32))
    for x, labels in batches(3, 4, image, 3):
        with turns(backwards=dtype == "float16"):
            results = main(tvm.runtime.tensor(x), tvm.runtime.tensor(labels), rate, *state)
        loss = descend(build, x, labels, want, RATE, optimizer.momentum, optimizer.weight_decay)
        assert float(results[0].numpy()) == pytest.approx(loss, rel=limit)
        for tensor, result in zip(state, results[-len(state) :], strict=True):
            assert tensor.data_ptr() == result.data_ptr()
    for name, tensor in zip(step.state, state, strict=True):
        error = np.abs(tensor.numpy() - want[name]).max() / (np.abs(want[name]).max() + 1e-3)
        assert error < 20 * limit, f"{name}: {error:.1e}"

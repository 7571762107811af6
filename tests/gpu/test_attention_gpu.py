"""Attention on the GPU: every candidate against float64, and networks with it from end to end."""

from __future__ import annotations

import numpy as np
import pytest

import convoy
from convoy.backends.kernels.attention.family import attention_backend
from convoy.backends.registry import get
from convoy.errors import LibraryMissing
from convoy.ir.candidate import Decline
from convoy.measure import protocol
from convoy.runtime import present_device

from ..attention import cases

pytestmark = pytest.mark.gpu

SEEDED = [cases.random_workload(np.random.default_rng(seed)) for seed in range(12)]
WORKLOADS = [
    cases.workload(1, 12, 197, dim=64, layout="packed"),
    cases.workload(64, 3, 49, dim=32, layout="packed", bias=(1, 1, 3, 49)),
    cases.workload(2, 2, 1500, dim=128, causal=True, dtype="bfloat16"),
    cases.workload(1, 2, 1, 700, 64),
    *SEEDED,
]


def kernels(parameters, device):
    """What the tests of these parameters run."""
    backend = attention_backend()
    found = [
        backend.propose(x["workload"], device) for x in parameters if x.get("workload") in WORKLOADS
    ]
    return {backend.launch_of(c).kernel for f in found if not isinstance(f, Decline) for c in f}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.key)
def test_candidates_against_float64(workload):
    backend, device = attention_backend(), present_device()
    candidates = backend.propose(workload, device)
    if isinstance(candidates, Decline):
        pytest.skip(candidates.reason)
    for candidate in candidates:
        try:
            binary = backend.build(workload, candidate, device)
        except LibraryMissing as missing:
            pytest.skip(f"no CUDA compiler: {missing.got}")
        found = protocol.measure(workload, candidate, binary, device, cold=False)
        assert found.ok, f"{candidate.kernel}: {found.failure}"


LONG = [
    cases.workload(8, 12, 197, dim=64, layout="packed"),
    cases.workload(2, 8, 1000, dim=40),
    cases.workload(2, 8, 700, 900, 128, dtype="bfloat16"),
    cases.workload(1, 16, 1025, dim=64, layout="bshd", causal=True),
]


@pytest.mark.parametrize("workload", LONG, ids=lambda w: w.key)
def test_engines_of_cudnn_against_float64(workload):
    backend, device = get("cudnn"), present_device()
    candidates = backend.propose(workload, device)
    assert not isinstance(candidates, Decline), candidates.reason
    for candidate in candidates:
        binary = backend.build(workload, candidate, device)
        found = protocol.measure(workload, candidate, binary, device, cold=False)
        assert found.ok, f"{candidate.kernel}: {found.failure}"


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_an_encoder_layer(cuda_graph, tmp_path):
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).eval()
    x = torch.randn(2, 77, 256)
    with torch.no_grad():
        wanted = layer(x).numpy()
    module = from_exported_program(torch.export.export(layer, (x,)))
    built = convoy.build(module, cuda_graph=cuda_graph, cache=False)
    assert "attention" in built.plan.backends()
    built.export_library(tmp_path / "layer.so")
    session = convoy.load(tmp_path / "layer.so").session()
    for _ in range(3):  # as calls, captured, replayed
        (got,) = session(x.numpy())
    assert np.linalg.norm(got - wanted) < 5e-3 * np.linalg.norm(wanted)

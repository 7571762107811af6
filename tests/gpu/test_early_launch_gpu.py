"""Kernels of each library right behind a long one that lets its successor start at once."""

from __future__ import annotations

import numpy as np
import pytest

import convoy
from convoy import CompiledModule, programmatic, relay
from convoy.relay.convert import to_relax

from ..helpers.errors import l2_error

pytestmark = pytest.mark.gpu

#: Sines of one element: the kernel runs for tens of microseconds in few CTAs, all of them resident.
SINES = 100
#: The convolution of each backend: its weights and attributes.
READERS = {
    **dict.fromkeys(("cudnn", "cutlass", "hopper"), ((64, 64, 3, 3), "padding=[1, 1, 1, 1]")),
    "depthwise": ((64, 1, 3, 3), "padding=[1, 1, 1, 1], groups=64"),
    "cublaslt": ((64, 64, 1, 1), ""),
}


def network(weights: tuple[int, ...], attributes: str) -> relay.IRModule:
    shape = ", ".join(map(str, weights))
    sines = " ".join(f"%{i + 1} = sin(multiply(%{i}, 1.7f));" for i in range(SINES))
    return relay.parse(
        f"""#[version = "0.0.5"]
def @main(%data: Tensor[(2, 64, 28, 28), float32], %w: Tensor[({shape}), float32]) {{
  %0 = %data; {sines}
  nn.conv2d(%{SINES}, %w, channels=64, kernel_size=[{weights[2]}, {weights[3]}], {attributes})
}}
"""
    )


def check_alike(early: CompiledModule, plain: CompiledModule, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    sessions = early.session(), plain.session()
    for _ in range(20):
        x = rng.uniform(-1, 1, shape).astype("float32")
        (got,), (want,) = (session(x) for session in sessions)
        assert l2_error(got, want) < 5e-3


@pytest.mark.parametrize("backend", READERS)
def test_reads_what_the_kernel_before_wrote(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, attributes = READERS[backend]
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(0, 0.1, weights).astype("float32")}
    module = to_relax(network(weights, attributes), params)
    options = {"precision": "float16", "objective": "graph"}
    early = convoy.build(module, "cuda", backends=(backend, "tvm"), **options)
    assert early.plan.backends().get(backend)
    monkeypatch.setenv(programmatic.VARIABLE, "0")
    plain = convoy.build(module, "cuda", backends=("tvm",), **options)
    check_alike(early, plain, (2, 64, 28, 28))


def test_a_chain_of_kernels_that_store_by_tma(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads what the one before it gave to TMA to be written."""
    rng = np.random.default_rng(0)
    sizes = [(192, 32), (32, 192)] * 3
    params = {
        f"w{i}": rng.normal(0, 0.1, (k, c, 1, 1)).astype("float32")
        for i, (k, c) in enumerate(sizes)
    }
    declared = ", ".join(
        f"%w{i}: Tensor[({k}, {c}, 1, 1), float32]" for i, (k, c) in enumerate(sizes)
    )
    calls = " ".join(
        f"%{i + 1} = nn.relu(nn.conv2d(%{i}, %w{i}, channels={k}, kernel_size=[1, 1]));"
        for i, (k, _) in enumerate(sizes)
    )
    text = f"""#[version = "0.0.5"]
def @main(%data: Tensor[(16, 32, 56, 56), float32], {declared}) {{
  %0 = %data; {calls} %{len(sizes)}
}}
"""
    module = to_relax(relay.parse(text), params)
    options = {"precision": "float16", "objective": "graph"}
    early = convoy.build(module, "cuda", backends=("hopper", "tvm"), **options)
    assert early.plan is not None
    kernels = [choice.chosen.candidate.kernel for choice in early.plan.choices]
    assert sum(kernel.startswith("pointwise_conv") for kernel in kernels) >= len(sizes) / 2
    monkeypatch.setenv(programmatic.VARIABLE, "0")
    plain = convoy.build(module, "cuda", backends=("tvm",), **options)
    check_alike(early, plain, (16, 32, 56, 56))

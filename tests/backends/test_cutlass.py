"""The candidate space: never an assert, always candidates that are valid or a reason."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
from hypothesis import given

from convoy.backends.kernels import backend as kernel_backend
from convoy.backends.kernels.cutlass import rules, space
from convoy.backends.kernels.cutlass.config import shared_memory
from convoy.backends.kernels.cutlass.family import cutlass_backend, rules_of
from convoy.errors import (
    CacheUnwritable,
    CompileFailed,
    InvalidOption,
    InvalidWorkload,
    LibraryMissing,
)
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

H200 = Device()
INT8 = {"dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"}
QUANTIZED = {
    **INT8,
    "out_dtype": "int8",
    "epilogue": Epilogue(bias=True, activation="clip", clip_max=255),
}
launch_of = cutlass_backend().launch_of
CHANNELS = st.one_of(st.integers(1, 40), st.sampled_from([64, 96, 128, 256, 512, 1000, 2048]))
DTYPES = st.sampled_from(
    [
        ("float16", "float16", "default"),
        ("bfloat16", "bfloat16", "default"),
        ("float32", "float32", "tf32"),
        ("float32", "float32", "default"),
        ("float16", "float32", "default"),
        ("bfloat16", "float16", "default"),
        ("int8", "int32", "default"),
        ("int8", "int8", "default"),
    ]
)


@st.composite
def workloads(draw):
    epilogue = Epilogue(
        residual=draw(st.booleans()),
        bias=draw(st.booleans()),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        affine_relu=draw(st.booleans()),
    )
    dtype, out_dtype, math = draw(DTYPES)
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 1, 2, 8]))
    fields = {
        "op": draw(st.sampled_from(["fprop", "fprop", "fprop", "dgrad", "wgrad", "matmul"])),
        "n": draw(st.sampled_from([1, 2, 3, 8, 31, 256])),
        "h": draw(st.integers(1, 70)),
        "w": draw(st.integers(1, 70)),
        "c": draw(CHANNELS) * groups,
        "k": draw(CHANNELS) * groups,
        "r": draw(st.integers(1, 7)),
        "s": draw(st.integers(1, 7)),
        "stride": draw(pair),
        "padding": tuple(draw(st.lists(st.integers(0, 4), min_size=4, max_size=4))),
        "dilation": draw(pair),
        "groups": groups,
        "dtype": dtype,
        "out_dtype": out_dtype,
        "math": math,
        "epilogue": epilogue,
    }
    if dtype == "int8":
        op = "matmul" if fields["op"] == "matmul" else "fprop"
        epilogue = Epilogue(bias=epilogue.bias)
        if out_dtype == "int8":
            low, high = sorted(draw(st.tuples(st.integers(0, 255), st.integers(0, 255))))
            epilogue = Epilogue(bias=True, activation="clip", clip_min=low, clip_max=high)
        fields |= {"op": op, "acc_dtype": "int32", "epilogue": epilogue}
    if fields["op"] == "matmul":
        fields |= {
            "h": 1,
            "w": 1,
            "r": 1,
            "s": 1,
            "stride": (1, 1),
            "padding": (0,) * 4,
            "groups": 1,
        }
    try:
        return Workload(**fields)
    except InvalidWorkload:
        return Workload(**fields | {"h": 70, "w": 70})


@given(workloads(), st.sampled_from([75, 80, 86, 89, 90, 100]))
def test_candidates_or_a_reason(workload, arch):
    device = dataclasses.replace(
        H200, arch=arch, shared_memory_per_block=shared_memory(arch), sm_count=108
    )
    backend = cutlass_backend()
    proposed = backend.propose(workload, device)
    if isinstance(proposed, Decline):
        assert proposed.reason and proposed.backend == "cutlass"
        return
    assert backend.accepts(workload, device) is None
    assert 1 <= len(proposed) <= 20
    assert len({candidate.kernel for candidate in proposed}) == len(proposed)
    assert [candidate.priority for candidate in proposed] == list(range(len(proposed)))
    for candidate in proposed:
        launch = launch_of(Candidate.from_json(candidate.to_json()))
        chosen = rules_of(workload)
        assert chosen.why_not(launch, workload, device) == ""
        assert launch.kernel.arch == (90 if arch == 90 else 80)
        assert candidate.workspace == chosen.workspace_bytes(launch, workload)
        if launch.kernel.scheduler == "splitk":
            least = 1 if launch.kernel.family == "sm80_wgrad" else 2
            assert launch.split_k >= least and candidate.workspace > 0


def conv(**changes) -> Workload:
    fields = {
        "op": "fprop",
        "n": 8,
        "h": 28,
        "w": 28,
        "c": 128,
        "k": 128,
        "r": 3,
        "s": 3,
        "padding": (1, 1, 1, 1),
    }
    return Workload(**fields | changes)


@pytest.mark.parametrize(
    ("workload", "device", "words"),
    [
        (conv(op="dgrad", epilogue=Epilogue(bias=True)), H200, "epilogue bias on dgrad"),
        (conv(op="dgrad", stride=(2, 2), dilation=(2, 2)), H200, "strided dgrad with dilation"),
        (conv(op="wgrad", c=7), H200, "C = 7 is odd"),
        (conv(op="wgrad", groups=8), H200, "groups = 8"),
        (conv(groups=128), H200, "depthwise"),
        (conv(groups=4), H200, "groups = 4"),
        (conv(c=3), H200, "C = 3"),
        (conv(c=6, **INT8), H200, "C = 6 of int8 is no multiple of 4"),
        (conv(k=6, **QUANTIZED), H200, "K = 6 of int8 is no multiple of 4"),
        (conv(c=16384, **INT8), H200, "sums of 147456 products"),
        (conv(k=1), H200, "K = 1"),
        (conv(dtype="float32", out_dtype="float32"), H200, "strict float32"),
        (conv(dtype="bfloat16"), H200, "bfloat16 in, float16 out"),
        (conv(acc_dtype="float16"), H200, "acc_dtype float16"),
        (conv(), dataclasses.replace(H200, arch=75), "sm_75"),
    ],
)
def test_decline_names_the_attribute(workload, device, words):
    decline = cutlass_backend().propose(workload, device)
    assert isinstance(decline, Decline)
    assert words in decline.reason


def families(workload, device=H200):
    proposed = cutlass_backend().propose(workload, device)
    assert not isinstance(proposed, Decline)
    return {launch_of(candidate).kernel.family for candidate in proposed}


def test_pointwise_products_are_gemms_and_other_convolutions_are_not():
    pointwise = {"r": 1, "s": 1, "padding": (0,) * 4}
    assert "sm90_gemm" in families(conv(**pointwise))
    assert "sm90_gemm" in families(Workload("matmul", 8, 1, 1, 2048, 1000, 1, 1))
    assert "sm90_gemm" not in families(conv(**pointwise, stride=(2, 2)))
    assert families(conv(n=256)) == {"sm90_conv"}


def deep_epilogues(workload) -> int:
    launches = map(launch_of, cutlass_backend().propose(workload, H200))
    return sum(launch.kernel.has_own_epilogue for launch in launches)


def test_deep_epilogues_are_for_products_that_memory_bounds():
    product = conv(n=256, r=1, s=1, padding=(0,) * 4)
    for epilogue in (Epilogue(residual=True), Epilogue(residual=True, affine_relu=True)):
        fused = dataclasses.replace(product, k=512, epilogue=epilogue)
        assert deep_epilogues(fused) == len(space.SM90_DEEP_EPILOGUE_TILES)
        assert not deep_epilogues(dataclasses.replace(fused, c=4096))
        assert not deep_epilogues(dataclasses.replace(fused, n=1, h=7, w=7))
    assert not deep_epilogues(dataclasses.replace(product, k=512))
    assert not deep_epilogues(conv(n=256, epilogue=Epilogue(residual=True)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_deep_epilogues_fit_into_shared_memory(dtype):
    epilogue = Epilogue(residual=True, affine_relu=True)
    types = {"dtype": dtype, "out_dtype": dtype}
    types |= {"math": "tf32"} if dtype == "float32" else {}
    workload = conv(n=256, k=512, r=1, s=1, padding=(0,) * 4, epilogue=epilogue, **types)
    offered = sum(config.has_own_epilogue for config in space.kernels(workload, 90))
    assert offered == len(space.SM90_DEEP_EPILOGUE_TILES)
    assert deep_epilogues(workload) == offered


def test_channels_that_tma_cannot_address_go_to_sm80():
    assert families(conv(c=36)) == {"sm80_conv"}
    assert families(conv(k=36)) == {"sm80_conv"}


def test_other_architectures_have_no_sm90_kernels():
    for arch in (80, 86, 89, 100):
        device = dataclasses.replace(H200, arch=arch, shared_memory_per_block=shared_memory(arch))
        assert families(conv(), device) == {"sm80_conv"}


@pytest.mark.parametrize(
    ("c", "iterator"),
    [(4, "fixed_channels"), (8, "fixed_channels"), (12, "few_channels"), (16, "few_channels")],
)
def test_first_layers_spread_the_reduction_over_the_filter(c, iterator):
    stem = conv(h=224, w=224, c=c, k=64, r=7, s=7, stride=(2, 2), padding=(3,) * 4)
    proposed = cutlass_backend().propose(stem, H200)
    assert iterator in {launch_of(candidate).kernel.iterator for candidate in proposed}


def test_deep_reductions_on_small_images_are_split():
    deep = conv(n=1, h=7, w=7, c=512, k=512)
    launches = [launch_of(candidate) for candidate in cutlass_backend().propose(deep, H200)]
    assert any(launch.kernel.scheduler == "splitk" for launch in launches)
    blocks = max(rules.output_tiles(launch.kernel, deep) * launch.split_k for launch in launches)
    assert blocks >= H200.sm_count * 0.6


def test_affine_relu_on_sm80_needs_split_k():
    workload = conv(c=288, k=36, n=1, h=7, w=7)
    workload = dataclasses.replace(workload, epilogue=Epilogue(affine_relu=True))
    for candidate in cutlass_backend().propose(workload, H200):
        assert launch_of(candidate).kernel.scheduler == "splitk"


def test_limit_by_argument_and_environment(monkeypatch):
    assert len(cutlass_backend(limit=3).propose(conv(), H200)) == 3
    monkeypatch.setenv("CONVOY_CUTLASS_LIMIT", "2")
    assert len(cutlass_backend().propose(conv(), H200)) == 2
    monkeypatch.setenv("CONVOY_CUTLASS_LIMIT", "few")
    with pytest.raises(InvalidOption, match="CONVOY_CUTLASS_LIMIT"):
        cutlass_backend()


def test_candidate_of_another_workload_is_not_built():
    backend = cutlass_backend()
    candidate = backend.propose(conv(), H200)[0]
    with pytest.raises(InvalidOption, match="another epilogue"):
        backend.build(conv(epilogue=Epilogue(activation="relu")), candidate, H200)
    with pytest.raises(InvalidOption, match="without 'kernel'"):
        backend.build(conv(), Candidate("cutlass", "x", "{}"), H200)


def test_failed_kernels_fail_when_built_not_when_prepared(monkeypatch):

    backend = cutlass_backend(limit=1)
    candidate = backend.propose(conv(), H200)[0]
    error = CompileFailed("words of nvcc")
    monkeypatch.setattr(
        kernel_backend, "compile_many", lambda configs: dict.fromkeys(configs, error)
    )
    assert backend.prepare([(conv(), candidate)], H200) == {candidate: error}
    with pytest.raises(CompileFailed, match="words of nvcc"):
        backend.build(conv(), candidate, H200)


@pytest.mark.parametrize("error", [LibraryMissing("no nvcc 13"), CacheUnwritable("full disk")])
def test_a_missing_compiler_costs_the_candidates_and_nothing_else(monkeypatch, error):
    def no_compiler(kernels):
        raise error

    monkeypatch.setattr(kernel_backend, "compile_many", no_compiler)
    backend = cutlass_backend()
    candidates = backend.propose(conv(), H200)[:3]
    failed = backend.prepare([(conv(), candidate) for candidate in candidates], H200)
    assert failed == dict.fromkeys(candidates, error)


def test_build_returns_entry_and_library(monkeypatch, tmp_path):
    from convoy.backends.kernels.cache import KernelCache

    entry = KernelCache(tmp_path).put("key", b"library", {})
    monkeypatch.setattr(kernel_backend, "compile_kernel", lambda config: entry)
    backend = cutlass_backend()
    candidate = backend.propose(conv(), H200)[0]
    binary = backend.build(conv(), candidate, H200)
    assert binary.blobs == {entry.sha256: b"library"}
    assert binary.entry["library"] == entry.sha256
    assert binary.entry["backend"] == "kernel"
    assert Workload.from_json(binary.entry["workload"]) == conv()


def resnet50(n: int) -> list[Workload]:
    """The pre-activation ResNet-50's convolutions with the epilogues that fusion gives them."""
    relu, pair = Epilogue(bias=True, activation="relu"), Epilogue(residual=True, affine_relu=True)
    found = [
        conv(n=n, h=224, w=224, c=4, k=64, r=7, s=7, stride=(2, 2), padding=(3,) * 4, epilogue=relu)
    ]
    for size, width, c in ((56, 64, 64), (28, 128, 256), (14, 256, 512), (7, 512, 1024)):
        point = {"n": n, "r": 1, "s": 1, "padding": (0,) * 4}
        for inputs in (c, 4 * width):
            found.append(conv(**point, h=size, w=size, c=inputs, k=width, epilogue=relu))
        for stride in (1, 2):
            found.append(
                conv(
                    n=n,
                    h=size * stride,
                    w=size * stride,
                    c=width,
                    k=width,
                    stride=(stride, stride),
                    epilogue=relu,
                )
            )
        found.append(conv(**point, h=size, w=size, c=width, k=4 * width, epilogue=pair))
        found.append(conv(**point, h=2 * size, w=2 * size, c=c, k=4 * width, stride=(2, 2)))
    return found


def test_a_network_at_three_batch_sizes_needs_few_compilations():
    everything = [workload for n in (1, 8, 256) for workload in resnet50(n)]
    kernels = set()
    for workload in everything:
        proposed = cutlass_backend().propose(workload, H200)
        assert not isinstance(proposed, Decline) and len(proposed) >= 2, workload.key
        kernels |= {launch_of(candidate).kernel for candidate in proposed}
    assert len(kernels) <= 80


def test_vector_width():
    assert [space.vector_width(c, "float16") for c in (64, 12, 6, 3)] == [8, 4, 2, 0]
    assert [space.vector_width(c, "float32") for c in (64, 6, 3)] == [4, 2, 1]

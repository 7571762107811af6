"""The backend of attention: candidates, or a reason; and the way of one through a build."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import tvm
from tests.helpers.kernel_abi.attention import AttentionLibrary, Problem
from tvm import relax
from tvm.relax import op

import convoy
from convoy.backends.kernels.attention import family
from convoy.backends.kernels.attention.kernel import TILES, AttentionKernel, kernel_from_json
from convoy.backends.kernels.compile import compile_to
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.backends.registry import get
from convoy.errors import InvalidOption, LibraryMissing, LibraryVersionMismatch
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.plan import Plan
from convoy.pipeline import predict_schedule

from . import cases

H200, A100 = Device(), Device("NVIDIA A100-SXM4-80GB", 80, 108, 166912)
VIT = cases.workload(1, 12, 197, dim=64, layout="packed")


@pytest.fixture
def backend():
    return family.attention_backend()


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.setattr(family, "_has_compiler", lambda: True)


@pytest.mark.parametrize("device", [H200, A100, dataclasses.replace(A100, arch=86)])
def test_a_candidate_for_each_block_size(backend, compiler, device):
    for workload in (VIT, cases.workload(64, 3, 49, dim=32, dtype="bfloat16")):
        candidates = backend.propose(workload, device)
        fields = [c.kernel_fields() for c in candidates]
        assert {(f["rows"], f["key_tile"]) for f in fields} == set(TILES)
        assert {c.kernel_fields()["arch"] for c in candidates} == {90 if device is H200 else 80}
        for candidate in candidates:
            assert backend.is_programmatic(candidate, device) == (device is H200)
            backend.check(candidate)
            assert "attention" in backend.kernel_source(candidate)


def test_few_queries_take_small_blocks(backend, compiler):
    """As many blocks as SMs where there are few queries, fewer reads of the keys otherwise."""
    first = [backend.propose(w, H200)[0].kernel_fields()["rows"] for w in (VIT, _batch(VIT, 64))]
    assert first[0] <= 32 and first[1] >= 64


def _batch(workload, n):
    return cases.workload(n, workload.groups, workload.h, dim=64, layout="packed")


@pytest.mark.parametrize(
    "workload, device, reason",
    [
        (VIT, dataclasses.replace(H200, arch=75), "sm_75"),
        (VIT, dataclasses.replace(H200, arch=120), "sm_120"),
        (cases.workload(dtype="float32"), H200, "float32"),
        (cases.workload(dim=136), H200, "136"),
        (cases.workload(dim=20), H200, "20"),
        (cases.workload(dim=16, value_dim=256), H200, "256"),
        (dataclasses.replace(VIT, acc_dtype="float16"), H200, "acc_dtype"),
        (cases.workload(bias=(1, 1, 1, 17), bias_dtype="bfloat16"), H200, "bias"),
    ],
)
def test_declines_with_a_reason(backend, workload, device, reason):
    decline = backend.propose(workload, device)
    assert isinstance(decline, Decline) and reason in decline.reason


def test_views_between_vectors_are_declined(backend):
    view = cases.workload(dim=24).attention.q
    odd = dataclasses.replace(view, shape=(1, 2, 17, 25), strides=(850, 850, 425, 25))
    attention = dataclasses.replace(cases.workload(dim=24).attention, q=odd)
    decline = backend.accepts(
        dataclasses.replace(cases.workload(dim=24), attention=attention), H200
    )
    assert decline is not None and "rows of q" in decline.reason


@pytest.mark.parametrize("name", ["cudnn", "cutlass", "hopper"])
def test_others_decline_attention(name):
    decline = get(name).accepts(VIT, H200)
    assert decline is not None and "attention" in decline.reason


def _with_strides(workload, batch, names="qkvo"):
    """The stride of the batch is this one."""
    views = {
        name: dataclasses.replace(view, strides=(view.strides[0], batch, *view.strides[2:]))
        for name in names
        if (view := getattr(workload.attention, name))
    }
    return dataclasses.replace(workload, attention=dataclasses.replace(workload.attention, **views))


LONG = cases.workload(batches=8, heads=16, queries=512, dim=64, layout="packed")


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (LONG, ""),
        (cases.workload(batches=8, heads=16, queries=512, dim=64, causal=True), ""),
        (cases.workload(batches=8, heads=16, queries=512, dim=64, dtype="bfloat16"), ""),
        (VIT, "GFLOP"),
        (cases.workload(batches=8, heads=16, queries=512, dim=64, bias=(1, 1, 1, 512)), "bias"),
        (cases.workload(batches=4, heads=16, queries=512, dim=64, outer=2), "groups"),
        (_with_strides(LONG, 0, "k"), "repeatedly"),
        (_with_strides(_batch(LONG, 1), 0), ""),
        (dataclasses.replace(LONG, dtype="float32", out_dtype="float32"), "float32"),
    ],
)
def test_cudnn_takes_long_attention(workload, reason):
    decline = get("cudnn").accepts(workload, H200)
    assert (decline is None) == (not reason) and (not reason or reason in decline.reason)


def test_cudnn_recognizes_the_operations():
    """Its fused engines are compiled at run time, for which the driver may be missing."""
    try:
        found = get("cudnn").propose(LONG, H200)
    except (LibraryMissing, LibraryVersionMismatch) as err:
        pytest.skip(str(err))
    if isinstance(found, Decline):
        assert "NVIDIA's driver is missing" in found.reason
    else:
        assert all("runtime_compilation" in candidate.notes for candidate in found)


def test_kernels_as_json():
    kernel = AttentionKernel(64, 128, 32, 128, "bfloat16", 80)
    assert kernel_from_json(kernel.to_json()) == kernel
    for changes in ({"dim": 24}, {"rows": 48}, {"arch": 89}, {"dtype": "float32"}, {"family": "x"}):
        with pytest.raises(InvalidOption):
            kernel_from_json({**kernel.to_json(), **changes})


def test_estimates_grow_with_the_work(backend, compiler):
    def best(workload):
        found = backend.propose(workload, H200)
        return min(backend.estimate_us(workload, candidate, H200) for candidate in found)

    times = [best(_batch(VIT, n)) for n in (1, 8, 64)]
    assert times == sorted(times) and 1.0 < times[0] < 10.0
    assert times[2] >= _batch(VIT, 64).flops / 990e6  # of an H200's peak


def test_estimates_leave_long_attention_to_cudnn(backend, compiler):
    """As on an H200: 2,048 tokens in 42 us instead of 102, 197 tokens of 8 images the same."""
    long = cases.workload(heads=16, queries=2048, dim=64)
    for workload, wins in ((long, True), (_batch(VIT, 4), False)):
        engine = get("cudnn").estimate_us(workload, Candidate("cudnn", "eng2"), H200)
        own = [backend.estimate_us(workload, c, H200) for c in backend.propose(workload, H200)]
        assert (engine < min(own)) == wins


@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES)
def test_library_and_backend_agree(backend, tmp_path, tile):
    """It compiles without spills for the largest heads, and checks what the backend checks."""
    try:
        toolkit = find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")
    kernel = AttentionKernel(128, 128, *tile)
    messages = compile_to(kernel, tmp_path / "kernel.so", toolkit, ["-Xptxas=-v"])
    assert "0 bytes spill stores, 0 bytes spill loads" in messages
    library = AttentionLibrary(tmp_path / "kernel.so")
    rng = np.random.default_rng(0)
    for _ in range(50):
        workload = cases.random_workload(rng)
        assert not library.check(Problem.of(workload))
    odd = dataclasses.replace(VIT.attention.q, offset=4)
    attention = dataclasses.replace(VIT.attention, q=odd)
    assert library.check(Problem.of(dataclasses.replace(VIT, attention=attention)))
    assert library.check(Problem.of(cases.workload(dim=136)))


def network():
    """softmax(q k^T) v of one linear layer, and a layer behind it."""
    rng, bb = np.random.default_rng(0), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((40, 64), "float32"))
    weights = [relax.const(rng.standard_normal(s).astype("float32")) for s in ((64, 192), (64, 64))]
    with bb.function("main", [x]):
        with bb.dataflow():
            qkv = bb.emit(op.reshape(bb.emit(op.matmul(x, weights[0])), (2, 20, 3, 4, 16)))
            parts = bb.emit(op.permute_dims(qkv, [2, 0, 3, 1, 4]))
            q, k, v = (bb.emit(op.take(parts, relax.const(i, "int64"), axis=0)) for i in range(3))
            s = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, [0, 1, 3, 2]))))
            s = bb.emit(op.multiply(s, relax.const(np.float32(1 / math.sqrt(16)))))
            o = bb.emit(op.matmul(bb.emit(op.nn.softmax(s)), v))
            o = bb.emit(op.reshape(bb.emit(op.permute_dims(o, [0, 2, 1, 3])), (40, 64)))
            y = bb.emit_output(op.matmul(o, weights[1]))
        bb.emit_func_output(y)
    return bb.get()


OWN = ("cutlass", "hopper", "attention", "tvm")


def test_placed_with_an_estimate(compiler):
    placement = convoy.place(network(), device=H200, backends=OWN)
    (choice,) = (c for c in placement.plan.choices if c.workload.op == "attention")
    assert choice.chosen.candidate.backend == "attention"
    assert choice.chosen.measurement.estimated and placement.plan.total_us() > 0
    assert all(c.linked for c in placement.plan.choices)  # a chain
    assert Plan.loads(placement.plan.dumps()) == placement.plan
    schedule = predict_schedule(placement)
    assert "attention" in str(schedule.to_json())


def test_without_a_compiler_the_chain_stays(monkeypatch):
    monkeypatch.setattr(family, "_has_compiler", lambda: False)
    monkeypatch.setattr("convoy.backends.kernels.backend.is_compiled", lambda kernel: False)
    placement = convoy.place(network(), device=H200, backends=("attention", "tvm"))
    assert placement.plan.choices == ()
    assert isinstance(placement.module, tvm.IRModule)

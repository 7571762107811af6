"""What the Hopper backend takes, what it declines and why, and what its candidates carry."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convoy.backends.kernels import backend as kernel_backend
from convoy.backends.kernels.sm90.dgrad import DgradKernel
from convoy.backends.kernels.sm90.family import is_stem, sm90_backend
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.backends.kernels.sm90.stem import StemDgradKernel, StemFpropKernel, StemWgradKernel
from convoy.errors import CompileFailed, InvalidOption, InvalidWorkload
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

DEVICE = Device()
launch_of = sm90_backend().launch_of
BASE = Workload("dgrad", 8, 56, 56, 128, 128, 3, 3, (2, 2), (1, 1, 1, 1))
RELU = Epilogue(bias=True, activation="relu")
STEM_FPROP = Workload("fprop", 8, 224, 224, 3, 64, 7, 7, (2, 2), (3, 3, 3, 3), epilogue=RELU)
STEM_WGRAD = Workload("wgrad", 8, 224, 224, 3, 64, 7, 7, (2, 2), (3, 3, 3, 3))
STEM = Workload("dgrad", 8, 224, 224, 3, 64, 7, 7, (2, 2), (3, 3, 3, 3))


def changed(base: Workload = BASE, **fields) -> Workload:
    return dataclasses.replace(base, **fields)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (changed(STEM_FPROP, r=13), "at most 11 rows"),
        (changed(STEM_FPROP, r=11, s=11), "320 weights"),
        (changed(STEM_FPROP, stride=(8, 2)), "stride 8 beyond"),
        (changed(STEM_FPROP, stride=(1, 1)), "odd elements"),
        (changed(STEM_FPROP, stride=(1, 30)), "1024 elements"),
        (changed(STEM_FPROP, w=299), "W * C = 897"),
        (changed(STEM_FPROP, k=100), "K = 100"),
        (changed(STEM_FPROP, groups=3, k=72), "groups = 3"),
        (changed(STEM_FPROP, epilogue=Epilogue(residual=True)), "epilogue residual"),
        (changed(STEM_FPROP, epilogue=Epilogue(activation="silu")), "epilogue silu"),
        (changed(op="wgrad"), "op wgrad with C = 128"),
        (changed(STEM_WGRAD, r=13), "at most 11 rows"),
        (changed(STEM_WGRAD, r=11, s=11), "320 weights"),
        (changed(STEM_WGRAD, stride=(8, 2)), "stride 8 beyond"),
        (changed(STEM_WGRAD, stride=(1, 1)), "odd elements"),
        (changed(STEM_WGRAD, stride=(1, 30)), "1024 elements"),
        (changed(STEM_WGRAD, w=299), "W * C = 897"),
        (changed(STEM_WGRAD, k=100), "K = 100"),
        (changed(STEM_WGRAD, epilogue=Epilogue(activation="relu")), "epilogue relu"),
        (changed(STEM, stride=(1, 1)), "C = 3 with stride 1x1"),
        (changed(dilation=(2, 2)), "dilation 2x2"),
        (changed(groups=2), "groups = 2"),
        (changed(dtype="float32", out_dtype="float32"), "float32 in"),
        (changed(out_dtype="float32"), "float32 out"),
        (changed(acc_dtype="float16"), "acc_dtype float16"),
        (changed(epilogue=Epilogue(activation="relu")), "epilogue relu"),
        (changed(k=100), "K = 100"),
        (changed(c=100), "C = 100"),
        (changed(stride=(4, 3)), "stride 4x3"),
        (changed(h=600, r=300, padding=(0, 1, 300, 1)), "range of 128"),
        (changed(STEM, stride=(3, 3)), "C = 3 with stride 3x3"),
        (changed(STEM, r=9), "C = 3 with a filter of 9x7"),
        (changed(STEM, k=256), "C = 3 with K = 256"),
        (changed(STEM, c=5), "C = 5"),
    ],
)
def test_declines_with_the_reason(workload, reason):
    decline = sm90_backend().propose(workload, DEVICE)
    assert isinstance(decline, Decline) and reason in decline.reason


def test_declines_other_architectures():
    for arch in (80, 89, 100):
        decline = sm90_backend().accepts(BASE, dataclasses.replace(DEVICE, arch=arch))
        assert decline is not None and f"sm_{arch}" in decline.reason


@st.composite
def workloads(draw):
    small, pad = st.integers(1, 20), st.integers(0, 3)
    try:
        return Workload(
            "dgrad",
            draw(st.integers(1, 300)),
            draw(small),
            draw(small),
            draw(st.sampled_from([1, 2, 3, 4, 5, 8, 24, 136, 2048])),
            draw(st.sampled_from([8, 40, 64, 128, 1000, 4])),
            draw(st.integers(1, 8)),
            draw(st.integers(1, 8)),
            (draw(st.integers(1, 4)), draw(st.integers(1, 4))),
            (draw(pad), draw(pad), draw(pad), draw(pad)),
            dtype=(dtype := draw(st.sampled_from(["float16", "bfloat16"]))),
            out_dtype=dtype,
        )
    except InvalidWorkload:
        assume(False)


@st.composite
def stem_windows(draw, op, filter_sizes=(1, 3, 7, 11), channels=(1, 2, 3, 4), strides_w=(1, 2, 3)):
    """fprop and wgrad with few channels, many of which a kernel takes."""
    sizes, strides = st.integers(1, 40), st.integers(1, 4)
    pad, filters = st.integers(0, 5), st.sampled_from(filter_sizes)
    try:
        return Workload(
            op,
            draw(st.integers(1, 300)),
            draw(sizes),
            8 * draw(sizes) - draw(st.sampled_from([0, 0, 4, 3])),
            draw(st.sampled_from(channels)),
            draw(st.sampled_from([8, 64, 100, 96])),
            draw(filters),
            draw(filters),
            (draw(strides), draw(st.sampled_from(strides_w))),
            (draw(pad), draw(pad), draw(pad), draw(pad)),
            epilogue=draw(st.sampled_from([Epilogue(), RELU])) if op == "fprop" else Epilogue(),
        )
    except InvalidWorkload:
        assume(False)


@given(st.one_of(workloads(), stem_windows("fprop"), stem_windows("wgrad")), st.integers(1, 30))
@settings(max_examples=150)
def test_candidates_are_unique_and_round_trip(workload, limit):
    backend = sm90_backend(limit)
    found = backend.propose(workload, DEVICE)
    if isinstance(found, Decline):
        assert backend.accepts(workload, DEVICE) == found and found.reason
        return
    assert 1 <= len(found) <= limit
    assert len({candidate.kernel for candidate in found}) == len(found)
    for candidate in found:
        assert Candidate.from_json(candidate.to_json()) == candidate
        kernel = launch_of(candidate).kernel
        assert kernel_from_json(kernel.to_json()) == kernel
        assert isinstance(kernel, DgradKernel) != is_stem(workload)
        assert kernel.dtype == workload.dtype
        if is_stem(workload):
            assert kernel.channels == workload.c


def test_few_tiles_get_a_split_reduction_first():
    """At N = 8 a 14x14 layer has 64 tiles of 128x128 for 132 multiprocessors."""
    small = changed(h=14, w=14, c=512, k=512)
    names = [c.kernel for c in sm90_backend().propose(small, DEVICE)]
    assert any("split2" in name for name in names[:4]), names
    large = [c.kernel for c in sm90_backend(4).propose(changed(n=256), DEVICE)]
    assert not any("split2" in name for name in large), large


def test_zero_phases_get_kernels_that_can_write_them():
    for size, zeros in ((1, True), (2, False), (3, False)):
        workload = changed(r=size, s=size, padding=(0, 0, 0, 0))
        for candidate in sm90_backend().propose(workload, DEVICE):
            assert launch_of(candidate).kernel.zeros == zeros


def test_build_refuses_candidates_of_other_workloads():
    backend = sm90_backend()
    stem = backend.propose(STEM, DEVICE)[0]
    with pytest.raises(InvalidOption, match="for this workload"):
        backend.build(BASE, stem, DEVICE)
    with pytest.raises(InvalidOption, match="for this workload"):
        backend.build(STEM_FPROP, stem, DEVICE)
    relu = backend.propose(STEM_FPROP, DEVICE)[0]
    with pytest.raises(InvalidOption, match="for this workload"):
        backend.build(changed(STEM_FPROP, epilogue=Epilogue(bias=True)), relu, DEVICE)
    wgrad = backend.propose(STEM_WGRAD, DEVICE)[0]
    with pytest.raises(InvalidOption, match="for this workload"):
        backend.build(STEM, wgrad, DEVICE)
    with pytest.raises(InvalidOption, match="for this workload"):
        backend.build(changed(STEM_WGRAD, stride=(2, 4)), wgrad, DEVICE)
    with pytest.raises(InvalidOption, match="dilation 2x2"):
        backend.build(changed(dilation=(2, 2)), backend.propose(BASE, DEVICE)[0], DEVICE)
    with pytest.raises(InvalidOption, match="of the hopper backend"):
        backend.build(BASE, Candidate("cudnn", "engine_1"), DEVICE)


def test_a_kernel_that_does_not_compile_is_reported_when_built(monkeypatch):
    error = CompileFailed("an error from nvcc", "a kernel library")
    monkeypatch.setattr(
        kernel_backend, "compile_many", lambda kernels: dict.fromkeys(kernels, error)
    )
    backend = sm90_backend()
    candidate = backend.propose(BASE, DEVICE)[0]
    assert backend.prepare([(BASE, candidate)], DEVICE) == {candidate: error}
    with pytest.raises(CompileFailed):
        backend.build(BASE, candidate, DEVICE)


def test_a_candidate_of_another_version_fails_alone(monkeypatch):
    monkeypatch.setattr(kernel_backend, "compile_many", lambda kernels: {})
    backend = sm90_backend()
    candidate = backend.propose(BASE, DEVICE)[0]
    options = candidate.options()
    options["kernel"]["store_warps"] = False  # as in plans of earlier versions
    same = dataclasses.replace(candidate, config=make_config(**options))
    options["kernel"]["store_warps"] = True
    gone = dataclasses.replace(candidate, config=make_config(**options))
    assert launch_of(same) == launch_of(candidate)
    failed = backend.prepare([(BASE, c) for c in (candidate, same, gone)], DEVICE)
    assert failed.keys() == {gone} and "fields" in str(failed[gone])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"columns": 192}, "tile 128x192"),
        ({"rows": 64}, "tile 64x128"),  # a cooperative consumer has half of it
        ({"rows": 512}, "tile 512x128"),
        ({"epilogue_stages": 3}, "1 to 2"),
        (
            {"commit_group": 2, "epilogue_stages": 1},
            "a divisor of 1 epilogue stages and 2 subtiles",
        ),
        ({"commit_group": 2, "split": 2}, "a divisor of 2 epilogue stages and 1 subtiles"),
        ({"consumers": 3}, "tile 128x128"),
        ({"consumers": 3, "pingpong": True, "rows": 192}, "that share a tile"),
        ({"stages": 99}, "shared memory"),
        ({"split": 3}, "divisor of 2"),
        ({"split": 2, "pingpong": True}, "cooperative schedule"),
        ({"overlapped_epilogue": True, "pingpong": True}, "overlapped_epilogue"),
        ({"overlapped_epilogue": True, "split": 2}, "two consumers"),
        ({"swap_ab": True, "pingpong": True}, "swap_ab, tile 128x128"),
        ({"swap_ab": True, "columns": 256}, "64 columns for each"),
        ({"swap_ab": True, "rows": 384}, "64, 128 or 256 rows"),
        ({"dtype": "float32"}, "float16, bfloat16"),
    ],
)
def test_kernels_that_cannot_exist(fields, words):
    base = {"rows": 128, "columns": 128, "pingpong": False, "epilogue_stages": 2}
    with pytest.raises(InvalidOption, match=words):
        DgradKernel(**base | fields)


def test_kernel_descriptions_that_are_not_ours():
    with pytest.raises(InvalidOption, match="family"):
        kernel_from_json({"family": "wgrad"})
    with pytest.raises(InvalidOption, match="fields"):
        kernel_from_json({"family": "stem_dgrad", "channels": 3, "rows": 8})
    with pytest.raises(InvalidOption, match="1 to 4"):
        StemDgradKernel(5)
    with pytest.raises(InvalidOption, match="1 to 4"):
        StemFpropKernel(5, 3, 3)
    with pytest.raises(InvalidOption, match="320 weights"):
        StemFpropKernel(4, 11, 11)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"channels": 5}, "1 to 4"),
        ({"filter_h": 11, "filter_w": 11}, "320 weights"),
        ({"filter_h": 12}, "at most 11 rows"),
        ({"stride_w": 3}, "an even product"),
        ({"parts": 3}, "6 times 64"),
        ({"parts": 2, "blocks": 2}, "6 times 64"),
        ({"blocks": 3}, "1 or 2 blocks"),
        ({"group": 9}, "1 to 8"),
        ({"dtype": "float32"}, "float16, bfloat16"),
    ],
)
def test_wgrad_kernels_that_cannot_exist(fields, words):
    base = {"channels": 3, "filter_h": 7, "filter_w": 7, "stride_w": 2}
    StemWgradKernel(**base)
    with pytest.raises(InvalidOption, match=words):
        StemWgradKernel(**base | fields)

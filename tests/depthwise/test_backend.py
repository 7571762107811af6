"""Candidates and declines of the depthwise backend."""

from __future__ import annotations

import dataclasses

import pytest

from convoy.backends.kernels.depthwise import space
from convoy.backends.kernels.depthwise.family import depthwise_backend
from convoy.backends.kernels.depthwise.kernels import ConvKernel, WgradKernel, kernel_from_json
from convoy.errors import InvalidOption
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

BASE = Workload("fprop", 8, 28, 28, 192, 192, 3, 3, (1, 1), (1, 1, 1, 1), groups=192)


def changed(base=BASE, **fields):
    return dataclasses.replace(base, **fields)


@pytest.mark.parametrize(("arch", "early"), [(80, False), (90, True), (100, False)])
def test_kernels_start_early_where_their_code_waits(arch, early):
    """Code for later GPUs is JIT-compiled from the PTX of sm_80; wgrad has two launches."""
    backend, device = depthwise_backend(), dataclasses.replace(Device(), arch=arch)
    for workload in (BASE, changed(op="dgrad"), changed(groups=8)):
        (candidate, *_) = backend.propose(workload, device)
        assert backend.is_programmatic(candidate, device) == early
    (wgrad, *_) = backend.propose(changed(op="wgrad"), device)
    assert not backend.is_programmatic(wgrad, device)


def first_launch(workload):
    return depthwise_backend().family.launches(workload, Device())[0]


@pytest.mark.parametrize(
    "workload",
    [
        BASE,
        changed(op="dgrad"),
        changed(op="wgrad"),
        changed(k=384),
        changed(op="wgrad", k=384),
        changed(c=7, k=7, groups=7),
        changed(r=31, s=5, padding=(15, 2, 15, 2)),
        changed(r=1, s=1, padding=(0, 0, 0, 0)),
        changed(stride=(2, 2), dilation=(2, 3)),
        changed(stride=(5, 7)),
        changed(op="dgrad", stride=(2, 2)),
        changed(dtype="float32", out_dtype="float32"),
        changed(dtype="float32", out_dtype="float32", math="tf32"),
        changed(dtype="bfloat16", out_dtype="bfloat16", n=1),
        changed(epilogue=Epilogue(residual=True, bias=True, activation="silu")),
        changed(epilogue=Epilogue(activation="clip", clip_max=6.0)),
        changed(groups=8),
        changed(groups=48, k=96, stride=(2, 2), dtype="bfloat16", out_dtype="bfloat16"),
        changed(groups=3, r=5, s=1, dilation=(2, 3), padding=(4, 0, 4, 0)),
        changed(groups=2, epilogue=Epilogue(residual=True, bias=True, activation="silu")),
    ],
    ids=lambda w: w.key,
)
def test_proposes(workload):
    for arch in (80, 86, 90, 100):
        device = dataclasses.replace(Device(), arch=arch)
        backend = depthwise_backend()
        found = backend.propose(workload, device)
        assert not isinstance(found, Decline) and 1 <= len(found) <= 6
        assert len({candidate.key for candidate in found}) == len(found)
        for candidate in found:
            launch = backend.launch_of(candidate)
            assert not backend.family.why_not(launch, workload, device)
            assert kernel_from_json(launch.kernel.to_json()) == launch.kernel
            assert backend.estimate_us(workload, candidate, device) > 0
            assert "tf32" not in candidate.notes


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Workload("matmul", 8, 1, 1, 64, 64, 1, 1), "groups = 1"),
        (changed(groups=1), "only grouped"),
        (changed(groups=96), "2 inputs and 2 outputs"),
        (changed(groups=8, op="dgrad"), "dgrad of a grouped"),
        (changed(groups=8, dtype="float32", out_dtype="float32"), "in float32"),
        (changed(groups=2, r=9, s=9, padding=(4,) * 4), "9x9x96 weights"),
        (changed(groups=24, dilation=(1 << 14, 1), padding=(1 << 14,) * 4), "index range"),
        (changed(out_dtype="float32"), "float32 out"),
        (changed(acc_dtype="float16"), "acc_dtype float16"),
        (changed(r=65, padding=(32, 1, 32, 1)), "at most 64x64"),
        (changed(epilogue=Epilogue(affine_relu=True)), "epilogue affinerelu"),
        (changed(epilogue=Epilogue(True, activation="relu", residual_last=True)), "only before"),
        (changed(op="dgrad", k=384), "2 outputs of a channel"),
        (changed(op="dgrad", stride=(5, 1)), "stride 5x1"),
        (changed(op="dgrad", stride=(2, 2), dilation=(2, 2)), "dilation"),
        (changed(op="wgrad", epilogue=Epilogue(bias=True)), "bias on wgrad"),
        (changed(n=20000), "4 GiB"),
        (changed(k=192 * 4096, h=1, w=1, n=1), "index range"),
    ],
)
def test_declines_with_the_reason(workload, reason):
    decline = depthwise_backend().propose(workload, Device())
    assert isinstance(decline, Decline) and reason in decline.reason


def test_declines_old_architectures():
    decline = depthwise_backend().accepts(BASE, dataclasses.replace(Device(), arch=75))
    assert decline is not None and "sm_75" in decline.reason


def test_library_by_filter():
    kernel = first_launch(changed(r=5, s=5)).kernel
    assert kernel == ConvKernel(5)
    assert first_launch(changed(r=5, s=3)).kernel == ConvKernel(0)
    strided = changed(op="dgrad", stride=(2, 2))
    assert first_launch(strided).kernel == ConvKernel(0)
    assert first_launch(changed(op="wgrad")).kernel == WgradKernel(3)


def test_first_guess_follows_the_size():
    """Many outputs go to large tiles, which read less; few go to small ones, for more threads."""

    def first(**fields):
        return space.tile_of(first_launch(changed(**fields)))

    large, small = first(n=64, h=112, w=112), first(n=1, h=7, w=7)
    assert large.rows * large.columns * large.vector > small.rows * small.columns * small.vector


def test_a_candidate_of_another_workload_is_refused():
    backend = depthwise_backend()
    candidate = backend.propose(BASE, Device())[0]
    for other in (changed(r=5), changed(op="wgrad"), changed(epilogue=Epilogue(activation="relu"))):
        with pytest.raises(InvalidOption, match="a kernel for this workload"):
            backend.build(other, candidate, Device())
    beyond = Candidate("depthwise", "x", make_config(kernel=ConvKernel(3).to_json(), swizzle=999))
    with pytest.raises(InvalidOption, match="no tile"):
        backend.build(BASE, beyond, Device())


@pytest.mark.parametrize(
    "kernel", [{}, [], {"family": "depthwise_conv", "filter": 4}, {"family": "x", "filter": 3}]
)
def test_unknown_kernels_are_refused(kernel):
    with pytest.raises(InvalidOption):
        kernel_from_json(kernel)


def layer(n: int, size: int, channels: int, taps: int, activation: str = "none") -> Workload:
    """A square depthwise layer of a network, stride 1, with bias."""
    return Workload(
        "fprop", n, size, size, channels, channels, taps, taps, padding=(taps // 2,) * 4,
        groups=channels, epilogue=Epilogue(bias=True, activation=activation),
    )  # fmt: skip


#: Layers, the tile that ran, and microseconds of all of them, as profiled in networks on an H200.
MEASURED = {
    "ConvNeXt-T, 56x56": ([layer(64, 56, 96, 7)], (2, 2, 7), 91.5),
    "ConvNeXt-T, 28x28": ([layer(64, 28, 192, 7)], (2, 2, 7), 49.0),
    "ConvNeXt-T, 14x14": ([layer(64, 14, 384, 7)], (2, 2, 7), 26.0),
    "ConvNeXt-T, 7x7": ([layer(64, 7, 768, 7)], (4, 1, 7), 15.0),
    "EfficientNet-B0, 28x28": ([layer(64, 28, 240, 5, "silu")], (4, 2, 4), 37.4),
    "EfficientNet-B0, 5x5": (
        [layer(64, 14, c, 5, "silu") for c in (480, 672, 672)]
        + [layer(64, 7, 1152, 5, "silu")] * 3,
        (4, 1, 7),
        113.9,
    ),
    "EfficientNet-B0, 3x3": (
        [layer(64, 112, 32, 3, "silu"), layer(64, 56, 144, 3, "silu")],
        (4, 4, 4),
        98.8,
    ),
    "XCiT, N=1": ([layer(1, 28, 128, 3)], (2, 1, 4), 2.63),
    "DaViT, N=1": ([layer(1, 7, 768, 3)], (1, 1, 7), 3.15),
}


@pytest.mark.parametrize("name", MEASURED)
def test_estimates_are_near_what_was_measured(name: str) -> None:
    workloads, tile, measured_us = MEASURED[name]
    family = depthwise_backend().family
    assert family.estimate_us is not None
    estimate = 0.0
    for workload in workloads:
        launches = family.launches(workload, Device())
        (launch,) = [x for x in launches if space.tile_of(x) == tile]
        estimate += family.estimate_us(launch, workload, Device())
    assert estimate == pytest.approx(measured_us, rel=0.15)

"""pointwise_conv: its libraries, what the backend offers of it, and what it declines."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.library import KernelLibrary, Shape

from convoy.backends.kernels import shipped
from convoy.backends.kernels.compile import compile_kernel, compile_to
from convoy.backends.kernels.sm90 import pointwise, small
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.backends.kernels.sm90.pointwise import PointwiseConvKernel
from convoy.errors import InvalidOption
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
DEVICE = Device()
BASE = Workload("fprop", 8, 14, 14, 64, 256, 1, 1)
#: With more outputs than the kernels for small batches take.
LARGE = dataclasses.replace(BASE, n=64, h=56, w=56)
MATMUL = {"op": "matmul", "h": 1, "w": 1}
THREE = {"r": 3, "s": 3, "padding": (1, 1, 1, 1)}
LAST = Epilogue(residual=True, activation="silu", residual_last=True)
BOTH = {"small_conv", "pointwise_conv"}
CLIP = Epilogue(activation="clip", clip_min=0.0, clip_max=6.0)


def changed(base: Workload = BASE, **fields) -> Workload:
    """A workload whose output has the input's dtype, unless given."""
    fields.setdefault("out_dtype", fields.get("dtype", "float16"))
    return dataclasses.replace(base, **fields)


def families(found) -> set[str]:
    assert isinstance(found, list), found
    return {sm90_backend().launch_of(candidate).kernel.family for candidate in found}


def test_compiles_without_spills(toolkit, tmp_path):
    kernel = PointwiseConvKernel("bfloat16")
    words = compile_to(kernel, tmp_path / "k.so", toolkit, ["-Xptxas=-v"])
    spills = re.findall(r"(\d+) bytes spill", words)
    assert len(spills) >= 2 * len(pointwise.TILES) and set(spills) == {"0"}, words
    # ptxas may put a warpgroup.arrive in front, but not wait between one wgmma and the next.
    assert set(re.findall(r"C75\d\d", words)) <= {"C7519"}, words
    assert "serializ" not in words, words


@pytest.mark.parametrize(
    ("fields", "name", "chosen"),
    [
        ({}, "pointwise_conv_f16", "none"),
        ({"dtype": "bfloat16"}, "pointwise_conv_bf16", "none"),
        (MATMUL, "pointwise_conv_f16", "none"),
        ({"dilation": (2, 3)}, "pointwise_conv_f16", "none"),
        ({"epilogue": CLIP}, "pointwise_conv_f16", "clip"),
        ({"epilogue": Epilogue(bias=True, activation="relu")}, "pointwise_conv_f16", "relu"),
        ({"epilogue": Epilogue(activation="gelu")}, "pointwise_conv_f16_gelu", "none"),
        ({"epilogue": LAST}, "pointwise_conv_f16_silu_residual", "none"),
        (
            {**MATMUL, "dtype": "bfloat16", "epilogue": Epilogue(activation="gelu")},
            "pointwise_conv_bf16_gelu",
            "none",
        ),
    ],
)
def test_kernel_of_a_workload(fields, name, chosen):
    w = changed(**fields)
    kernel = pointwise.kernel_of(w)
    assert kernel is not None and kernel.name == name
    assert kernel.residual_last == w.epilogue.residual_last
    assert kernel_from_json(kernel.to_json()) == kernel
    swizzles = [swizzle for _, swizzle in pointwise.guesses(w, DEVICE)]
    assert len(swizzles) == len(pointwise.TILES)
    assert {small.choices(s)[1:] for s in swizzles} == {(1, chosen)}
    assert not any(pointwise.why_not(kernel, s, w) for s in swizzles)
    # of the same library, but chosen otherwise by a launch; and of another library
    for activation in ("sigmoid", "mish"):
        other = dataclasses.replace(w, epilogue=Epilogue(activation=activation))
        assert all(pointwise.why_not(kernel, s, other) for s in swizzles)


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "float32"},
        {"dtype": "float32", "math": "tf32"},
        {"dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"},
        {"stride": (2, 2)},
        {"stride": (1, 2)},
        {"op": "dgrad"},
        {"op": "wgrad"},
        THREE,
        {"s": 3, "padding": (0, 1, 0, 1)},
        {"padding": (1, 1, 1, 1)},
        {"padding": (0, 0, 1, 0)},
        {"c": 264},
        {**MATMUL, "c": 2048},
        {"n": 1 << 14, "h": 1 << 8, "w": 1 << 8},
        {"k": (1 << 20) + 8},
    ],
)
def test_there_is_no_kernel_for(fields):
    assert pointwise.kernel_of(changed(**fields)) is None


@pytest.mark.parametrize(
    ("channels", "columns"),
    [
        (128, {64, 128, 192, 256}),
        (136, {64, 192, 256}),
        (192, {64, 192, 256}),
        (200, {192}),
        (256, {192}),
        (264, set()),
    ],
)
def test_tiles_whose_weights_shared_memory_holds(channels, columns):
    w = changed(c=channels)
    found = {small.choices(s)[0] for _, s in pointwise.guesses(w, DEVICE)}
    assert {pointwise.TILES[tile].columns for tile in found} == columns


def test_a_swizzle_stands_for_a_tile_that_fits_and_no_cluster():
    w = changed(c=200)
    kernel = pointwise.kernel_of(w)
    assert kernel is not None
    offered = {swizzle for _, swizzle in pointwise.guesses(w, DEVICE)}
    places = (len(pointwise.TILES) + 1) * len(small.SPLITS) * len(small.CHOSEN)
    assert {s for s in range(places) if not pointwise.why_not(kernel, s, w)} == offered


@pytest.mark.parametrize(
    "fields", [("float32",), ("tf32",), ("int8",), ("float16", "relu"), ("float16", "", True)]
)
def test_kernels_that_do_not_exist(fields):
    with pytest.raises(InvalidOption):
        PointwiseConvKernel(*fields)


OTHER = (
    THREE,
    {"dilation": (2, 1)},
    *({"stride": stride} for stride in ((1, 2), (2, 1))),
    *({"padding": padding} for padding in ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0))),
)


@st.composite
def workloads(draw):
    """1x1 convolutions and matmuls, most of them with as many channels as shared memory holds or
    somewhat more; some convolutions that are not of the kernel."""
    eighths = st.integers(1, 40) | st.sampled_from(
        (15, 16, 17, 23, 24, 25, 31, 32, 33, 1 << 10, 1 << 18)
    )
    c = 8 * draw(eighths)
    k = 8 * draw(st.integers(1, 200) | st.sampled_from((1 << 17, (1 << 17) + 1)))
    n = draw(st.integers(1, 200) | st.sampled_from((1 << 20, (1 << 30) - 1, 1 << 30)))
    if draw(st.booleans()):
        return changed(**MATMUL, n=n, c=c, k=k)
    sides = st.integers(1, 300) | st.sampled_from((1 << 10, 1 << 15))
    other = draw(st.just({}) | st.sampled_from(OTHER))
    return changed(n=n, h=draw(sides), w=draw(sides), c=c, k=k, **other)


@given(workloads())
@settings(max_examples=200)
def test_library_takes_what_the_backend_offers(toolkit, w):
    library = KernelLibrary(compile_kernel(PointwiseConvKernel(), toolkit=toolkit).path)
    offered = {small.choices(s)[:2] for _, s in pointwise.guesses(w, DEVICE)}
    if pointwise.kernel_of(w) is None:
        offered = set()
    for tile in range(len(pointwise.TILES) + 2):
        for split in small.SPLITS:
            for activation in ("none", "silu"):
                swizzle = small.swizzle_of(tile, split, activation)
                problem = library.check(Shape.of(w, 132, swizzle=swizzle))
                assert (problem == "") == ((tile, split) in offered), (tile, split, problem)
    assert {split for _, split in offered} <= {1}


@pytest.mark.parametrize("fields", [{}, MATMUL, {"epilogue": LAST}])
def test_small_problems_are_proposed_with_both_families(fields):
    found = sm90_backend(limit=64).propose(changed(**fields), DEVICE)
    assert families(found) == BOTH


@pytest.mark.parametrize("epilogue", [Epilogue(), CLIP, Epilogue(activation="gelu"), LAST])
def test_large_problems_are_proposed_with_this_kernel_alone(epilogue):
    w = changed(LARGE, epilogue=epilogue)
    assert small.too_large(w)
    assert sm90_backend().accepts(w, DEVICE) is None
    found = sm90_backend(limit=64).propose(w, DEVICE)
    assert families(found) == {"pointwise_conv"}
    assert len(found) == len(pointwise.TILES)


def test_the_most_outputs_of_small_kernels():
    most = changed(n=small.MOST_OUTPUTS // 256, h=1, w=1)
    assert families(sm90_backend(limit=64).propose(most, DEVICE)) == BOTH
    more = dataclasses.replace(most, n=most.n + 1)
    assert families(sm90_backend(limit=64).propose(more, DEVICE)) == {"pointwise_conv"}


@pytest.mark.parametrize(
    "fields",
    [
        THREE,
        {"stride": (2, 2), "h": 112, "w": 112},
        {"padding": (1, 1, 1, 1)},
        {"c": 264},
        {"dtype": "float32"},
        {"dtype": "float32", "math": "tf32"},
    ],
)
def test_other_large_problems_are_declined(fields):
    w = changed(LARGE, **fields)
    decline = sm90_backend().propose(w, DEVICE)
    outputs = w.n * w.p * w.q * w.k
    assert isinstance(decline, Decline) and f"{outputs} outputs: at most" in decline.reason


@pytest.mark.parametrize("size", [BASE, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"}, "int8 in, int32 out"),
        ({"out_dtype": "float32"}, "float16 in, float32 out"),
        ({"acc_dtype": "float16"}, "acc_dtype float16"),
        ({"c": 68}, "C = 68"),
        ({"k": 260}, "K = 260"),
        ({"groups": 2}, "groups = 2"),
        ({"epilogue": Epilogue(bias=True, affine_relu=True)}, "a second result"),
    ],
)
def test_declines_with_the_reason(size, fields, reason):
    decline = sm90_backend().propose(changed(size, **fields), DEVICE)
    assert isinstance(decline, Decline) and reason in decline.reason


def shipping() -> list[PointwiseConvKernel]:
    """The kernels that tuning/ship_kernels.py packs for all sizes."""
    script = runpy.run_path(str(ROOT / "tuning" / "ship_kernels.py"))
    return [kernel for _, kernel in script["small"]() if isinstance(kernel, PointwiseConvKernel)]


def test_all_ship():
    """Where this fails, sources have changed: run tuning/ship_kernels.py on a machine with nvcc."""
    kernels = shipping()
    assert {kernel.dtype for kernel in kernels} == {"float16", "bfloat16"}
    assert len(set(kernels)) == len(kernels)
    for epilogue in (Epilogue(), CLIP, LAST, Epilogue(activation="gelu")):
        assert pointwise.kernel_of(changed(epilogue=epilogue)) in kernels
    assert not [kernel.name for kernel in kernels if not shipped.has(kernel)]

"""small_conv: its index arithmetic against the definition, and what the backend offers."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.library import KernelLibrary, Shape

from convoy.backends.kernels.compile import compile_kernel, compile_to
from convoy.backends.kernels.sm90 import small
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.backends.kernels.sm90.small import SmallConvKernel
from convoy.errors import InvalidOption, InvalidWorkload
from convoy.ir.device import Device
from convoy.ir.dtypes import DTYPE_BYTES
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure.reference import full

from .formulas import Formulas, load

DEVICE = Device()
DTYPES = ("float16", "float32")
BASE = Workload("fprop", 1, 14, 14, 256, 256, 3, 3, (1, 1), (1, 1, 1, 1))


@pytest.fixture(scope="module")
def f() -> Formulas:
    return load()


@st.composite
def workloads(draw, channels=(8, 24, 64, 72, 128), images=(1, 2, 3)):
    size, taps, pad = st.integers(1, 12), st.integers(1, 3), st.integers(0, 2)
    step = st.integers(1, 3)
    try:
        return Workload(
            "fprop",
            draw(st.sampled_from(images)),
            draw(size),
            draw(size),
            draw(st.sampled_from(channels)),
            draw(st.sampled_from((8, 40, 64, 72))),
            draw(taps),
            draw(taps),
            (draw(step), draw(step)),
            (draw(pad), draw(pad), draw(pad), draw(pad)),
            (draw(step), draw(step)),
        )
    except InvalidWorkload:
        assume(False)


def by_the_kernel(f: Formulas, w: Workload, rows: int, slices: int, x, weights) -> np.ndarray:
    """y as the kernel computes it, with CUDA's im2col copies; all channels at once."""
    (stride_h, stride_w), (top, left, *_), (dilation_h, dilation_w) = (
        w.stride,
        w.padding,
        w.dilation,
    )
    pixels = w.n * w.p * w.q
    chunk = small.STEP_BYTES // DTYPE_BYTES[w.dtype]
    chunks = -(-w.c // chunk)
    shape = (pixels, w.p, w.q, w.k, stride_h, stride_w, top, left, dilation_h, dilation_w)
    shape += (w.s, w.r * w.s, chunks)
    y = np.full((pixels, w.k), np.nan)
    for first in range(0, pixels, rows):
        sums = np.zeros((rows, w.k))
        for rank in range(slices):
            begin, end = f.small_conv_steps(shape, rank, slices)
            assert end > begin, "a block without a step never sees its weights"
            for step in range(begin, end):
                tap, channel, offset_h, offset_w = at = f.small_conv_step(shape, step, chunk)
                assert step == begin or at == f.small_conv_next(shape, step - 1, chunk)
                own = slice(channel, min(channel + chunk, w.c))
                filters = weights.reshape(w.k, -1, w.c)[:, tap, own]
                sums += (
                    copied(f.small_conv_pixel(shape, first), w, rows, x)(offset_h, offset_w, own)
                    @ filters.T
                )
        y[first : first + rows] = sums[: max(0, pixels - first)]
    return y.reshape(w.n, w.p, w.q, w.k)


def copied(start: tuple[int, int, int], w: Workload, rows: int, x):
    """An im2col copy: ``rows`` pixels of the bounding box from ``start`` on, zeros outside of x."""
    (top, left, bottom, right), (stride_h, stride_w) = w.padding, w.stride
    upper_h = w.h - 1 + bottom - w.dilation[0] * (w.r - 1)
    upper_w = w.w - 1 + right - w.dilation[1] * (w.s - 1)

    def copy(offset_h: int, offset_w: int, channels: slice) -> np.ndarray:
        n, h, v = start
        found = np.zeros((rows, channels.stop - channels.start))
        for row in range(rows):
            at_h, at_w = h + offset_h, v + offset_w
            if n < w.n and 0 <= at_h < w.h and 0 <= at_w < w.w:
                found[row] = x[n, at_h, at_w, channels]
            v += stride_w
            if v > upper_w:
                v, h = -left, h + stride_h
                if h > upper_h:
                    h, n = -top, n + 1
        return found

    return copy


@given(workloads(), st.sampled_from((64, 128)), st.sampled_from(small.SPLITS))
@settings(max_examples=25)
def test_is_a_convolution(f, w, rows, slices):
    assume(slices <= small.steps(w))
    rng = np.random.default_rng(0)
    x, weights = (rng.integers(-4, 5, size) for _, size, _ in w.operand_shapes()[:2])
    (wanted,) = full(w, {"x": x.astype("float16"), "w": weights.astype("float16")})
    np.testing.assert_array_equal(by_the_kernel(f, w, rows, slices, x, weights), wanted)


def test_every_swizzle_is_a_choice():
    for tile in range(len(small.TILES)):
        for split in small.SPLITS:
            for activation in small.CHOSEN:
                swizzle = small.swizzle_of(tile, split, activation)
                assert small.choices(swizzle) == (tile, split, activation)
    assert small.choices(len(small.TILES) * len(small.SPLITS) * len(small.CHOSEN)) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 256}, "12845056 outputs"),
        ({"c": 260}, "C = 260"),
        ({"stride": (9, 1)}, "stride 9x1"),
        ({"groups": 2}, "groups = 2"),
        ({"epilogue": Epilogue(bias=True, affine_relu=True)}, "epilogue"),
        ({"r": 300, "padding": (200, 1, 200, 1)}, "range"),
    ],
)
def test_declines_with_the_reason(fields, reason):
    decline = sm90_backend().accepts(dataclasses.replace(BASE, **fields), DEVICE)
    assert decline is not None and reason in decline.reason


def test_few_tiles_are_split_and_many_are_not():
    def first(w: Workload) -> int:
        return small.choices(min(small.guesses(w, DEVICE))[1])[1]

    assert first(dataclasses.replace(BASE, h=7, w=7, c=512, k=512)) > 1
    assert first(dataclasses.replace(BASE, n=16, h=28, w=28, c=64, r=1, s=1, padding=(0,) * 4)) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_compiles_without_spills(toolkit, tmp_path, dtype):
    library = tmp_path / "kernel.so"
    words = compile_to(SmallConvKernel(dtype), library, toolkit, ["-Xptxas=-v"])
    spills = re.findall(r"(\d+) bytes spill", words)
    assert spills and set(spills) == {"0"}, words
    assert "C75" not in words, words  # ptxas: wgmma serialized


OWN = Epilogue(activation="gelu"), Epilogue(residual=True, activation="relu", residual_last=True)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "small_conv_f16"),
        ({"epilogue": Epilogue(residual=True, activation="silu")}, "small_conv_f16"),
        ({"epilogue": OWN[0], "dtype": "bfloat16"}, "small_conv_bf16_gelu"),
        ({"epilogue": OWN[1]}, "small_conv_f16_relu_residual"),
        ({"dtype": "float32"}, "small_conv_f32"),
        ({"dtype": "float32", "math": "tf32", "epilogue": OWN[0]}, "small_conv_tf32_gelu"),
    ],
)
def test_a_library_for_each_dtype_and_uncommon_epilogue(fields, name):
    w = dataclasses.replace(BASE, **fields, out_dtype=fields.get("dtype", "float16"))
    backend = sm90_backend(limit=100)
    found = backend.propose(w, DEVICE)
    assert isinstance(found, list)
    launches = [backend.launch_of(candidate) for candidate in found]
    own = [launch for launch in launches if launch.kernel.family == "small_conv"]
    assert {launch.kernel.name for launch in own} == {name}
    assert {launch.kernel.family for launch in launches} <= {"small_conv", "halo_conv"}
    for launch in own:
        assert not small.why_not(launch.kernel, launch.swizzle, w)
        other = dataclasses.replace(w, epilogue=Epilogue(activation="mish"))
        assert small.why_not(launch.kernel, launch.swizzle, other)


@pytest.mark.parametrize("fields", [("float16", "relu"), ("float16", "", True), ("int8",)])
def test_kernels_that_do_not_exist(fields):
    with pytest.raises(InvalidOption):
        SmallConvKernel(*fields)


def test_older_records_name_the_kernels_of_today():
    assert SmallConvKernel().to_json() == {"family": "small_conv", "dtype": "float16"}
    own = SmallConvKernel("tf32", "mish", True)
    assert kernel_from_json(own.to_json()) == own


@settings(max_examples=30)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2))
@example([134869.09375, 571336.125])
def test_three_products_are_nearly_exact(pair):
    """What small_conv_exact.cuh computes, with the rests of float32.cuh: these are below 2^-10 of a
    number, so that their product is below 2^-20, and lose two bits, 3 * 2^-23 of it at most."""
    a, b = np.array(pair, np.float32)

    def leading(x):
        return (np.float32(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    r, q = leading(a - leading(a)), leading(b - leading(b))
    near = float(r) * float(leading(b)) + float(leading(a)) * float(q)
    near += float(leading(a)) * float(leading(b))
    exact = float(a) * float(b)
    bound = 2.0**-20 + 2 * 3 * 2.0**-23
    assert abs(near - exact) <= bound * abs(exact) or abs(exact) < 1e-30


@given(workloads(channels=(8, 72, 100), images=(1, 40_000)), st.sampled_from(DTYPES))
@settings(max_examples=100)
def test_library_takes_what_the_backend_offers(toolkit, w, dtype):
    w = dataclasses.replace(w, dtype=dtype, out_dtype=dtype)
    library = KernelLibrary(compile_kernel(SmallConvKernel(dtype), toolkit=toolkit).path)
    if sm90_backend().accepts(w, DEVICE) is None:
        for _, swizzle in small.guesses(w, DEVICE):
            assert library.check(Shape.of(w, 132, swizzle=swizzle)) == ""

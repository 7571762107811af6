"""halo_conv: its index arithmetic against the definition, and what the backend offers."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.library import KernelLibrary, Shape

from convoy.backends.kernels.compile import compile_kernel, compile_to
from convoy.backends.kernels.sm90 import halo, small
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.halo import HaloConvKernel
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.errors import InvalidOption, InvalidWorkload
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure.reference import full

from .formulas import Formulas, load

DEVICE = Device()
BASE = Workload("fprop", 8, 14, 14, 256, 256, 3, 3, (1, 1), (1, 1, 1, 1))


@pytest.fixture(scope="module")
def f() -> Formulas:
    return load()


@st.composite
def workloads(draw, channels=(8, 72, 128), images=(1, 2, 3, 5), largest=20):
    sizes, taps = st.integers(1, largest), st.integers(1, 4)
    pad, step = st.integers(0, 3), st.integers(1, 2)
    try:
        w = Workload(
            "fprop",
            draw(st.sampled_from(images)),
            draw(sizes),
            draw(sizes),
            draw(st.sampled_from(channels)),
            draw(st.sampled_from((8, 40))),
            draw(taps),
            draw(taps),
            (1, 1),
            (draw(pad), draw(pad), draw(pad), draw(pad)),
            (draw(step), draw(step)),
        )
    except InvalidWorkload:
        assume(False)
    assume(w.r * w.s > 1)
    return w


def shape_of(w: Workload) -> tuple[int, ...]:
    top, left = w.padding[:2]
    chunks = small.steps(w) // (w.r * w.s)
    sizes = (w.n * w.p * w.q, w.p, w.q, w.k, 1, 1, top, left, *w.dilation)
    return (*sizes, w.s, w.r * w.s, chunks)


def by_the_kernel(f: Formulas, w: Workload, rows: int, x, weights) -> np.ndarray:
    """y as the kernel computes it, all channels at once."""
    shape = shape_of(w)
    tile = f.halo_tile(shape, w.n, rows)
    _, _, images, pitch, lines, across, down = tile
    y = np.full((w.n * w.p * w.q, w.k), np.nan)
    filters = weights.reshape(w.k, -1, w.c)
    margin = max(lines, pitch)
    around = np.pad(x, ((0, images), (margin, margin), (margin, margin), (0, 0)))
    for number in range(across * down * -(-w.n // images)):
        n, h, v = f.halo_origin(tile, number)
        top, left = h - w.padding[0] + margin, v - w.padding[1] + margin
        copied = around[n : n + images, top : top + lines, left : left + pitch].reshape(-1, w.c)
        for row in range(rows):
            pixel = f.halo_pixel(tile, shape, number, row)
            if pixel >= 0:
                assert np.isnan(y[pixel]).all(), "written twice"
                places = [f.halo_position(tile, shape, row, tap) for tap in range(w.r * w.s)]
                y[pixel] = np.einsum("tc,ktc->k", copied[places], filters)
    return y.reshape(w.n, w.p, w.q, w.k)


@given(workloads(), st.sampled_from((64, 128, 256)))
@settings(max_examples=25)
def test_is_a_convolution(f, w, rows):
    assume(halo.cover(w, rows) is not None)
    rng = np.random.default_rng(0)
    x, weights = (rng.integers(-4, 5, size) for _, size, _ in w.operand_shapes()[:2])
    (wanted,) = full(w, {"x": x.astype("float16"), "w": weights.astype("float16")})
    np.testing.assert_array_equal(by_the_kernel(f, w, rows, x, weights), wanted)


@given(workloads(largest=300), st.sampled_from((64, 128, 256)))
@settings(max_examples=100)
def test_covers_as_the_kernel_does(f, w, rows):
    found = halo.cover(w, rows)
    width, height, images, pitch, lines, across, down = f.halo_tile(shape_of(w), w.n, rows)
    if found is None:
        assert width == 0
        return
    tiles = across * down * -(-w.n // images)
    assert found == halo.Cover(width, height, images, pitch, lines, tiles)


@pytest.mark.parametrize(
    ("size", "rows", "expected"),
    [(14, 128, (7, 1)), (7, 64, (7, 1)), (7, 128, (7, 2)), (28, 128, (4, 1))],
)
def test_covers_of_resnet50(size, rows, expected):
    w = dataclasses.replace(BASE, h=size, w=size)
    found = halo.cover(w, rows)
    assert found is not None and (found.height, found.images) == expected


def test_compiles_without_spills(toolkit, tmp_path):
    words = compile_to(HaloConvKernel("bfloat16"), tmp_path / "k.so", toolkit, ["-Xptxas=-v"])
    spills = re.findall(r"(\d+) bytes spill", words)
    assert spills and set(spills) == {"0"}, words
    assert "C75" not in words, words  # ptxas: wgmma serialized


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "halo_conv_f16"),
        ({"epilogue": Epilogue(activation="gelu")}, "halo_conv_f16_gelu"),
        ({"dtype": "float32", "math": "tf32"}, "halo_conv_tf32"),
        ({"dtype": "float32"}, None),
        ({"stride": (2, 2)}, None),
        ({"r": 1, "s": 1, "padding": (0, 0, 0, 0)}, None),
    ],
)
def test_kernel_of_a_workload(fields, name):
    w = dataclasses.replace(BASE, **fields, out_dtype=fields.get("dtype", "float16"))
    kernel = halo.kernel_of(w)
    assert (kernel and kernel.name) == name
    if kernel is not None:
        assert kernel_from_json(kernel.to_json()) == kernel
        swizzles = [swizzle for _, swizzle in halo.guesses(w, DEVICE)]
        assert swizzles and not any(halo.why_not(kernel, s, w) for s in swizzles)
        other = dataclasses.replace(w, epilogue=Epilogue(activation="mish"))
        assert all(halo.why_not(kernel, s, other) for s in swizzles)


def test_there_is_no_float32_library():
    with pytest.raises(InvalidOption):
        HaloConvKernel("float32")


@given(workloads(channels=(8, 72, 512), images=(1, 8), largest=90))
@settings(max_examples=100)
def test_library_takes_what_the_backend_offers(toolkit, w):
    library = KernelLibrary(compile_kernel(HaloConvKernel(), toolkit=toolkit).path)
    offered = {swizzle for _, swizzle in halo.guesses(w, DEVICE)}
    for tile in range(len(halo.TILES)):
        for split in small.SPLITS:
            swizzle = small.swizzle_of(tile, split, "none")
            problem = library.check(Shape.of(w, 132, swizzle=swizzle))
            assert (problem == "") == (swizzle in offered), (tile, split, problem)


def test_more_tiles_than_a_grid_has_are_not_proposed():
    w = dataclasses.replace(BASE, n=70_000, h=2, w=2, c=8, k=8)
    tiles = {halo.TILES[small.choices(s, len(halo.TILES))[0]] for _, s in halo.guesses(w, DEVICE)}
    assert tiles and {tile.rows for tile in tiles} == {128, 256}


def test_is_proposed_beside_the_general_kernel():
    found = sm90_backend(limit=64).propose(BASE, DEVICE)
    assert isinstance(found, list)
    families = {sm90_backend().launch_of(candidate).kernel.family for candidate in found}
    assert families == {"small_conv", "halo_conv"}

"""expand_depthwise: its tiles against all pixels, its library, and what the backend offers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.expansion import ExpansionLibrary, Problem

from convoy.backends.kernels.sm90 import expand_depthwise, expand_tiles
from convoy.backends.kernels.sm90.expand_depthwise import CHOSEN, ExpandDepthwiseKernel
from convoy.backends.kernels.sm90.expand_tiles import LIMITS, ExpandTile, Limit
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.expansion import Expansion
from convoy.ir.workload import Workload

from . import fused
from .expansion_cases import cases, taken_cases, usual
from .formulas import Formulas, load
from .fused import DEVICE, activated

BASE = next(usual())
BOTH = [*usual("float16"), *usual("bfloat16")]
KERNELS = [ExpandDepthwiseKernel(dtype) for dtype in ("float16", "bfloat16")]


@pytest.fixture(scope="module")
def f() -> Formulas:
    return load()


@pytest.fixture(scope="module")
def compiled(toolkit, tmp_path_factory) -> tuple[str, Path]:
    """What the compiler says, and the library."""
    return fused.compiled_with_words(
        KERNELS[1], toolkit, tmp_path_factory.mktemp("expand_depthwise")
    )


@pytest.fixture(scope="module")
def library(compiled) -> ExpansionLibrary:
    return ExpansionLibrary(compiled[1])


def changed(base: Workload = BASE, expansion: dict | None = None, **fields) -> Workload:
    """A workload with other fields of its own and of its expansion."""
    inner = dataclasses.replace(base.expansion, **expansion or {})
    return dataclasses.replace(base, expansion=inner, **fields)


@st.composite
def workloads(draw, largest=120, images=70, wide=60):
    """Workloads that the kernel takes, but for activations and channels."""
    size, taps = st.integers(1, largest), draw(st.sampled_from(expand_depthwise.FILTERS))
    pad = st.integers(0, taps - 1)
    k = 8 * draw(st.integers(1, wide))
    epilogues = [activated(draw(st.sampled_from(CHOSEN))) for _ in range(2)]
    try:
        return Workload(
            "expand_depthwise", draw(st.integers(1, images)), draw(size), draw(size), k, k, taps,
            taps, draw(st.sampled_from([(1, 1), (2, 2)])), tuple(draw(pad) for _ in range(4)),
            groups=k, dtype="bfloat16", out_dtype="bfloat16", epilogue=epilogues[0],
            expansion=Expansion(8 * draw(st.integers(1, wide)), epilogues[1]),
        )  # fmt: skip
    except InvalidWorkload:
        assume(False)


def shape_of(w: Workload) -> tuple[int, ...]:
    """As ExpandShape."""
    return w.n, w.h, w.w, w.p, w.q, w.r, w.stride[0], *w.padding[:2]


def fields_of(tile: ExpandTile) -> tuple[int, ...]:
    """As ExpandTile of the header."""
    sizes = (tile.images, tile.width, tile.height, tile.pitch, tile.rows)
    return *sizes, tile.across, tile.down, tile.groups, tile.strips


def chosen_by_the_header(f: Formulas, w: Workload, limit: Limit, device: Device = DEVICE):
    together = expand_tiles.resident(w, limit.columns, limit.pixels // 64) * device.sm_count
    blocks = (-(-w.k // limit.columns), limit.units, together)
    return f.expand_tile(shape_of(w), blocks, limit.pixels)


@given(workloads(), st.sampled_from((1, 4, 78, 114, 132, 160)))
@settings(max_examples=150)
def test_tiles_are_those_of_the_header(f, w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for limit in LIMITS:
        found = chosen_by_the_header(f, w, limit, device)
        tile = expand_tiles.tile_of(w, limit, device)
        assert tile is not None and fields_of(tile) == found
        assert tile.cost(w) == f.expand_tile_cost(shape_of(w), found)


@given(workloads(largest=60, images=9, wide=20), st.sampled_from((1, 4, 132)))
@settings(max_examples=120)
def test_tiles_cover_every_output_once(f, w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for limit in LIMITS:
        tile = expand_tiles.tile_of(w, limit, device)
        assert tile is not None
        written = np.zeros((w.n, w.p, w.q), int)
        for number in range(tile.count(w) // -(-w.k // limit.columns)):
            line, column = divmod(number, tile.across)
            image, row = divmod(line, tile.down)
            n, p, q = image * tile.images, row * tile.height, column * tile.width
            assert n < w.n and p < w.p and q < w.q
            end = n + tile.images, p + tile.height, q + tile.width
            written[n : end[0], p : end[1], q : end[2]] += 1
        assert (written == 1).all(), limit


@given(workloads(), st.sampled_from((1, 4, 132)))
@settings(max_examples=120)
def test_tiles_are_within_their_limits(w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for limit in LIMITS:
        tile = expand_tiles.tile_of(w, limit, device)
        assert tile is not None
        assert tile.images * tile.rows * tile.pitch <= 64 * tile.groups <= limit.pixels
        assert tile.images * tile.strips <= limit.units
        assert max(tile.images, tile.rows, tile.pitch) <= 256, "of a box of TMA"
        assert tile.pitch <= w.w and tile.rows <= w.h


@given(workloads(), st.sampled_from((1, 4, 132)))
@settings(max_examples=120)
def test_a_tile_holds_the_columns_under_its_windows(f, w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for limit in LIMITS:
        tile = expand_tiles.tile_of(w, limit, device)
        assert tile is not None
        for q in range(0, w.q, tile.width):
            left = f.expand_left(shape_of(w), fields_of(tile), q)
            assert 0 <= left <= w.w - tile.pitch
            outputs = np.arange(q, min(q + tile.width, w.q))
            columns = outputs[:, None] * w.stride[1] - w.padding[1] + np.arange(w.s)
            there, inside = columns - left, (columns >= 0) & (columns < w.w)
            # What is not held counts as padding.
            np.testing.assert_array_equal((there >= 0) & (there < tile.pitch), inside)


@given(workloads(), st.sampled_from((1, 4, 132)))
@settings(max_examples=120)
def test_chunks_are_the_rows_under_the_windows(f, w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for limit in LIMITS:
        tile = expand_tiles.tile_of(w, limit, device)
        assert tile is not None
        for p in range(0, w.p, tile.height):
            height = min(tile.height, w.p - p)
            window, begin, end = f.expand_rows(shape_of(w), p, height)
            rows = np.arange(p, p + height)[:, None] * w.stride[0] - w.padding[0] + np.arange(w.r)
            assert window == rows[0, 0]
            inside = rows[(rows >= 0) & (rows < w.h)]
            assert (begin, end) == (inside.min(), inside.max() + 1)
            chunks = -(-(end - begin) // tile.rows)
            assert 0 < chunks <= -(-min(w.h, (height - 1) * w.stride[0] + w.r) // tile.rows)


@pytest.mark.parametrize("w", [*BOTH, *taken_cases(100, 3)], ids=lambda w: w.key)
def test_tiles_of_the_cases_are_those_of_the_header(f, w):
    for limit in LIMITS:
        tile = expand_tiles.tile_of(w, limit, DEVICE)
        assert tile is not None and fields_of(tile) == chosen_by_the_header(f, w, limit)


def test_compiles_with_few_spills(compiled):
    kernels = len(expand_depthwise.FILTERS) * len({limit.columns for limit in LIMITS})
    fused.check_spills(compiled[0], 2 * 2 * kernels)
    fused.check_wgmma(compiled[0])


def test_exports_the_abi(compiled):
    fused.check_exports(compiled[1], "expansion")


def places(w: Workload, swizzles) -> set[int]:
    """The places in LIMITS of swizzles, all of which are of a workload's activations."""
    activations = (w.epilogue.activation, w.expansion.epilogue.activation)
    depthwise, expand = (CHOSEN.index(a) if a in CHOSEN else 0 for a in activations)
    first = depthwise * len(CHOSEN) + expand
    assert {swizzle % len(CHOSEN) ** 2 for swizzle in swizzles} <= {first}
    return {swizzle // len(CHOSEN) ** 2 for swizzle in swizzles}


def taken(library: ExpansionLibrary, w: Workload) -> set[int]:
    """The places in LIMITS that the library runs."""
    return fused.taken(library, Problem.of, w, len(LIMITS), len(CHOSEN) ** 2)


def offered(w: Workload) -> set[int]:
    """The places in LIMITS that the backend proposes."""
    return places(w, fused.proposed(w, 64) or ())


def check_offers(library: ExpansionLibrary, w: Workload) -> None:
    """The library takes what the backend offers, and beside it only what is the same."""
    of_library, of_backend = taken(library, w), offered(w)
    assert of_backend <= of_library and bool(of_backend) == bool(of_library)
    tiles = {place: same(w, LIMITS[place]) for place in of_library}
    assert {tiles[place] for place in of_backend} == set(tiles.values())


def same(w: Workload, limit: Limit) -> tuple[object, int]:
    """What launches with limits that have this alike have in common."""
    tile = expand_tiles.tile_of(w, limit, DEVICE)
    assert tile is not None
    return fields_of(tile), limit.columns


#: Changes to BASE-like workloads, none of which the kernel takes.
OTHERS = (
    {"dilation": (2, 2)},
    {"dilation": (1, 2)},
    {"r": 7, "s": 7},
    {"r": 1, "s": 3},
    {"r": 3, "s": 5},
    {"r": 1, "s": 1, "padding": (0, 0, 0, 0)},
    {"stride": (1, 2)},
    {"stride": (2, 1)},
    {"stride": (3, 3)},
    *({"padding": tuple(5 * (i == side) for i in range(4))} for side in range(4)),
    {"k": 36, "c": 36, "groups": 36},
)


@given(
    workloads(wide=130),
    st.none() | st.sampled_from(OTHERS),
    st.none() | st.sampled_from([4, 12, 1004, 1 << 20, (1 << 20) + 8]),
)
@settings(max_examples=300)
def test_library_takes_what_the_backend_offers(library, w, other, channels):
    try:
        w = changed(w, {"channels": channels} if channels else {}, **other or {})
    except InvalidWorkload:
        assume(False)
    check_offers(library, w)
    if other or channels:
        assert not offered(w)


@pytest.mark.parametrize("taps", expand_depthwise.FILTERS)
def test_offers_fill_shared_memory_and_no_more(library, taps):
    """Weights that leave little room for pixels."""
    wrong = []
    for channels in range(8, 1100, 8):
        w = changed(expansion={"channels": channels}, dtype="bfloat16", out_dtype="bfloat16")
        w = dataclasses.replace(w, r=taps, s=taps, padding=(taps // 2,) * 4)
        fitting = {place for place, limit in enumerate(LIMITS) if expand_tiles.fits(w, limit)}
        if taken(library, w) != fitting:
            wrong.append(w.key)
    assert not wrong


@pytest.mark.parametrize("channels", [832, 840, 896, 960, 968])
def test_blocks_of_fewer_channels_take_more_of_the_input(library, channels):
    check_offers(library, changed(BOTH[4], {"channels": channels}))


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({"k": 1 << 20, "c": 1 << 20, "groups": 1 << 20}, True),
        ({"k": (1 << 20) + 8, "c": (1 << 20) + 8, "groups": (1 << 20) + 8}, False),
        ({"n": 1 << 20, "h": 31, "w": 33, "stride": (1, 1)}, True),
        ({"n": 1 << 20, "h": 32, "w": 32, "stride": (1, 1)}, False),
    ],
)
def test_the_largest(library, fields, is_taken):
    w = changed(BOTH[4], **fields)
    assert bool(offered(w)) == bool(taken(library, w)) == is_taken
    check_offers(library, w)


@pytest.mark.parametrize("swizzle", [-1, len(LIMITS) * len(CHOSEN) ** 2, 1 << 30])
def test_library_rejects_other_swizzles(library, swizzle):
    assert library.check(Problem.of(BASE, 132, swizzle))


def test_library_takes_all_activations(library):
    swizzles = range(len(LIMITS) * len(CHOSEN) ** 2)
    assert not any(library.check(Problem.of(BASE, 132, swizzle)) for swizzle in swizzles)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_there_and_back(kernel):
    fused.check_there_and_back(kernel, "expand_depthwise")


def test_all_ship():
    """Where this fails, sources have changed: run tuning/ship_kernels.py on a machine with nvcc."""
    fused.check_shipped(KERNELS)


def test_other_dtypes_have_no_kernel():
    fused.check_dtypes(ExpandDepthwiseKernel)


@pytest.mark.parametrize("expand", CHOSEN)
@pytest.mark.parametrize("depthwise", CHOSEN)
def test_swizzles_are_of_the_activations(depthwise, expand):
    w = changed(expansion={"epilogue": activated(expand)}, epilogue=activated(depthwise))
    swizzles = expand_depthwise.swizzles(w, DEVICE)
    assert swizzles and len(set(swizzles)) == len(swizzles)
    assert len(places(w, swizzles)) == len(swizzles)
    kernel, other = KERNELS
    for swizzle in swizzles:
        assert fused.why_not(kernel, swizzle, w) == ""
        assert fused.why_not(other, swizzle, w)
        for neighbour in (swizzle - 1, swizzle + 1, swizzle + len(CHOSEN)):
            assert fused.why_not(kernel, neighbour, w)


def test_swizzles_of_equal_tiles_are_one():
    """An image that the smallest chunk holds has the same tile whatever the limit."""
    w = changed(h=4, w=4, stride=(1, 1))
    swizzles = expand_depthwise.swizzles(w, DEVICE)
    tiles = {same(w, limit) for limit in LIMITS}
    assert len(swizzles) == len(tiles)


def test_it_computes_nothing_else():
    depthwise = dataclasses.replace(BASE, op="fprop", expansion=None)
    assert "is of another operation" in fused.why_not(KERNELS[0], 0, depthwise)


@pytest.mark.parametrize("w", BOTH, ids=lambda w: w.key)
def test_candidates_are_programmatic(w):
    swizzles = expand_depthwise.swizzles(w, DEVICE)
    fused.check_candidates(w, ExpandDepthwiseKernel(w.dtype), swizzles, 2, len(LIMITS))


@pytest.mark.parametrize("w", [*cases(100, 5), *taken_cases(100, 5)], ids=lambda w: w.key)
def test_library_takes_the_cases_that_are_offered(library, w):
    half = dataclasses.replace(w, dtype="bfloat16", out_dtype="bfloat16")
    if {w.epilogue.activation, w.expansion.epilogue.activation} <= set(CHOSEN):
        check_offers(library, half)
    else:
        assert not offered(half)


def test_there_are_cases_of_the_kernel():
    assert all(sm90_backend().accepts(w, DEVICE) is None for w in taken_cases(200, 7))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expansion": {"channels": 12}}, "12 channels"),
        ({"expansion": {"channels": 1032}}, "exceed shared memory"),
        ({"expansion": {"epilogue": activated("tanh")}}, "activation tanh"),
        ({"epilogue": activated("tanh")}, "activation tanh"),
        ({"epilogue": activated("sigmoid")}, "activation sigmoid"),
        ({"dilation": (2, 2)}, "dilation 2x2"),
        ({"r": 7, "s": 7, "padding": (3,) * 4}, "a filter of 7x7"),
        ({"r": 1}, "a filter of 1x3"),
        ({"stride": (1, 2)}, "stride 1x2"),
        ({"stride": (3, 3)}, "stride 3x3"),
        ({"padding": (1, 3, 1, 1)}, "windows outside of the image"),
        ({"k": 36, "c": 36, "groups": 36}, "K = 36"),
        ({"dtype": "float32", "out_dtype": "float32"}, "float32 in"),
        ({"acc_dtype": "float16"}, "acc_dtype float16"),
        ({"n": 1 << 21}, "too large"),
    ],
)
def test_declines_with_the_reason(fields, reason):
    decline = sm90_backend().propose(changed(**fields), DEVICE)
    assert isinstance(decline, Decline) and reason in decline.reason


def test_other_devices_are_declined():
    for arch in (80, 100):
        decline = sm90_backend().accepts(BASE, dataclasses.replace(DEVICE, arch=arch))
        assert decline is not None and f"sm_{arch}" in decline.reason


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_takes_the_chosen_activations(activation):
    epilogue = activated(activation)
    for w in (changed(epilogue=epilogue), changed(expansion={"epilogue": epilogue})):
        declined = sm90_backend().accepts(w, DEVICE)
        assert (declined is None) == (activation in CHOSEN)

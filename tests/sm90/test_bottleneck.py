"""bottleneck: its library, the rules that choose it, and what the backend offers."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.bottleneck import BottleneckLibrary, Problem

from convoy.backends.kernels.sm90 import bottleneck
from convoy.backends.kernels.sm90.bottleneck import CHOSEN, BottleneckKernel
from convoy.backends.kernels.sm90.bottleneck_blocks import BLOCKS
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.candidate import Decline
from convoy.ir.epilogue import NO_EPILOGUE
from convoy.ir.workload import Workload

from . import fused
from .bottleneck_cases import cases, taken_cases, usual
from .fused import DEVICE, activated

BASE, PAIR, *_ = usual()
BOTH = [*usual("float16"), *usual("bfloat16")]
KERNELS = [BottleneckKernel(dtype) for dtype in ("float16", "bfloat16")]


@pytest.fixture(scope="module")
def compiled(toolkit, tmp_path_factory) -> tuple[str, Path]:
    """What the compiler says, and the library."""
    return fused.compiled_with_words(KERNELS[1], toolkit, tmp_path_factory.mktemp("bottleneck"))


@pytest.fixture(scope="module")
def library(compiled) -> BottleneckLibrary:
    return BottleneckLibrary(compiled[1])


def changed(base: Workload = BASE, own: dict | None = None, **fields) -> Workload:
    """A workload with other fields of its own and of its bottleneck."""
    inner = dataclasses.replace(base.bottleneck, **own or {})
    return dataclasses.replace(base, bottleneck=inner, **fields)


@st.composite
def workloads(draw, most_channels=20):
    """Bottlenecks of any size, of activations that the kernel has."""
    size, taps, step = st.integers(1, 90), st.integers(1, 7), st.integers(1, 3)
    channels = st.integers(1, most_channels).map(lambda count: 8 * count)
    reduce = draw(st.just(0) | channels)
    epilogues = [activated(draw(st.sampled_from(CHOSEN))) for _ in range(3)]
    wide = dataclasses.replace(epilogues[1], residual=draw(st.booleans()))
    try:
        return Workload(
            "bottleneck", draw(st.integers(1, 70)), draw(size), draw(size), draw(channels),
            draw(channels), draw(taps), draw(taps),
            padding=tuple(draw(st.integers(0, 3)) for _ in range(4)),
            dilation=(draw(step), draw(step)), dtype="bfloat16", out_dtype="bfloat16",
            epilogue=epilogues[0],
            bottleneck=Bottleneck(
                4 * draw(channels), wide, reduce, epilogues[2] if reduce else NO_EPILOGUE
            ),
        )  # fmt: skip
    except InvalidWorkload:
        assume(False)


def offered(w: Workload) -> set[int]:
    """The places in BLOCKS that the backend proposes."""
    return fused.offered(w, len(CHOSEN) ** 3)


def taken(library: BottleneckLibrary, w: Workload) -> set[int]:
    """The places in BLOCKS that the library runs."""
    return fused.taken(library, Problem.of, w, len(BLOCKS), len(CHOSEN) ** 3)


def test_compiles_with_few_spills(compiled):
    fused.check_spills(compiled[0])
    fused.check_wgmma(compiled[0])


def test_exports_the_abi(compiled):
    fused.check_exports(compiled[1], "bottleneck")


@given(workloads())
@settings(max_examples=300)
def test_library_takes_what_the_backend_offers(library, w):
    assert taken(library, w) == offered(w)


@given(workloads(most_channels=8))
@settings(max_examples=200)
def test_library_takes_small_ones_that_the_backend_offers(library, w):
    assert taken(library, w) == offered(w)


#: Changes to the workloads of networks, none of which the kernel takes.
OTHERS = (
    {"c": 12},
    {"k": 12},
    {"k": 136},
    {"own": {"expand": 100}},
    {"own": {"reduce": 20}},
    {"own": {"reduce": 136}},
    {"dilation": (125, 1), "padding": (125, 1, 125, 1)},
    {"dilation": (1, 125), "padding": (1, 125, 1, 125)},
    {"r": 31, "s": 31, "padding": (15,) * 4},
    {"c": 1024},
)


@pytest.mark.parametrize("w", [w for w in BOTH if w.dtype == "bfloat16"], ids=lambda w: w.key)
@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_neither_takes_others(library, w, fields):
    w = changed(w, **fields)
    assert not offered(w) and not taken(library, w)


@pytest.mark.parametrize("k", [8, 64, 72, 128])
@pytest.mark.parametrize("reduce", [0, 64, 128])
def test_offers_fill_shared_memory_and_no_more(library, k, reduce):
    third = activated("relu") if reduce else NO_EPILOGUE
    base = changed(BOTH[4], {"reduce": reduce, "reduce_epilogue": third}, k=k)
    sizes = [(c, expand) for c in (8, 64, 72, 128) for expand in range(8, 1100, 24)]
    sizes += [(c, 256) for c in range(8, 1200, 8)]
    found = set()
    for c, expand in sizes:
        w = changed(base, {"expand": expand}, c=c)
        fitting = {place for place, block in enumerate(BLOCKS) if block.fits(w)}
        assert taken(library, w) == fitting == offered(w), w.key
        found.add(bool(fitting))
    assert found == {True, False}


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({"n": (1 << 20) - 1, "h": 32, "w": 32}, True),
        ({"n": 1 << 20, "h": 32, "w": 32}, False),
        ({"dilation": (32, 1), "padding": (32, 1, 32, 1), "c": 8, "s": 1}, True),
        ({"dilation": (125, 1), "padding": (125, 1, 125, 1), "c": 8, "s": 1}, False),
    ],
    ids=str,
)
def test_the_largest(library, fields, is_taken):
    w = changed(BOTH[4], {"expand": 8, "reduce": 0, "reduce_epilogue": NO_EPILOGUE}, **fields)
    assert offered(w) == taken(library, w) and bool(offered(w)) == is_taken


@pytest.mark.parametrize("swizzle", [-1, len(BLOCKS) * len(CHOSEN) ** 3, 1 << 30])
def test_library_rejects_other_swizzles(library, swizzle):
    assert library.check(Problem.of(BASE, 132, swizzle))


def test_library_takes_all_activations(library):
    swizzles = range(len(CHOSEN) ** 3)
    assert not any(library.check(Problem.of(PAIR, 132, swizzle)) for swizzle in swizzles)


@pytest.mark.parametrize("w", [*cases(100, 5), *taken_cases(100, 5)], ids=lambda w: w.key)
def test_library_takes_the_cases_that_are_offered(library, w):
    half = dataclasses.replace(w, dtype="bfloat16", out_dtype="bfloat16")
    if set(bottleneck.activations(half)) <= set(CHOSEN):
        assert taken(library, half) == offered(half)
    else:
        assert not offered(half)


def test_there_are_cases_of_the_kernel():
    assert all(sm90_backend().accepts(w, DEVICE) is None for w in [*BOTH, *taken_cases(200, 7)])


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_there_and_back(kernel):
    fused.check_there_and_back(kernel, "bottleneck")


def test_all_ship():
    """Where this fails, sources have changed: run tuning/ship_kernels.py on a machine with nvcc."""
    fused.check_shipped(KERNELS)


def test_other_dtypes_have_no_kernel():
    fused.check_dtypes(BottleneckKernel)


def test_swizzles_are_of_the_activations():
    found = set()
    kernel, other = KERNELS
    for conv, expand, reduce in itertools.product(CHOSEN, repeat=3):
        own = {"expand_epilogue": activated(expand, True), "reduce_epilogue": activated(reduce)}
        w = changed(own=own, epilogue=activated(conv))
        (number,) = {swizzle % 27 for swizzle in bottleneck.swizzles(w, DEVICE)}
        assert number == CHOSEN.index(conv) + 3 * CHOSEN.index(expand) + 9 * CHOSEN.index(reduce)
        found.add(number)
        for swizzle in bottleneck.swizzles(w, DEVICE):
            assert fused.why_not(kernel, swizzle, w) == ""
            assert "is of another operation" in fused.why_not(other, swizzle, w)
            assert "other activations" in fused.why_not(kernel, swizzle + 1, w)
    assert found == set(range(27))
    assert {swizzle % 27 for swizzle in bottleneck.swizzles(PAIR, DEVICE)} == {4}, "none of a third"


def test_it_computes_nothing_else():
    first, *_ = parts(BASE)
    assert "is of another operation" in fused.why_not(KERNELS[0], 0, first)


@pytest.mark.parametrize("w", BOTH, ids=lambda w: w.key)
def test_candidates_are_programmatic(w):
    swizzles = bottleneck.swizzles(w, DEVICE)
    fused.check_candidates(w, BottleneckKernel(w.dtype), swizzles, 1, len(BLOCKS))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"c": 12}, "C = 12"),
        ({"k": 12}, "K = 12"),
        ({"k": 136}, "K = 136: at most 128"),
        ({"own": {"expand": 100}}, "expand = 100"),
        ({"own": {"reduce": 20}}, "reduce = 20"),
        ({"own": {"reduce": 136}}, "reduce = 136: at most 128"),
        ({"c": 1024}, "exceed shared memory"),
        ({"epilogue": activated("silu")}, "activation silu"),
        ({"own": {"expand_epilogue": activated("gelu")}}, "activation gelu"),
        ({"own": {"reduce_epilogue": activated("tanh")}}, "activation tanh"),
        ({"dilation": (130, 1), "padding": (130, 1, 130, 1)}, "exceed shared memory"),
        ({"dtype": "float32", "out_dtype": "float32"}, "float32 in"),
        ({"acc_dtype": "float16"}, "acc_dtype float16"),
        ({"n": 1 << 19}, "too large"),
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
    changes = [{"epilogue": epilogue}, {"own": {"expand_epilogue": epilogue}}]
    changes.append({"own": {"reduce_epilogue": epilogue}})
    for fields in changes:
        assert bool(offered(changed(**fields))) == (activation in CHOSEN)


@given(workloads(), st.sampled_from((78, 132)))
@settings(max_examples=150)
def test_the_guess_grows_with_the_work(w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for block in BLOCKS:
        us = block.guess_us(w, device)
        assert us > w.bytes_moved / 4e6
        more = dataclasses.replace(w, n=w.n + 300), changed(w, {"expand": w.bottleneck.expand + 64})
        assert all(block.guess_us(other, device) > us for other in more)


def test_small_images_take_other_blocks_than_large_ones():
    few, many = (bottleneck.swizzles(dataclasses.replace(PAIR, n=n), DEVICE) for n in (1, 64))
    assert set(few) == set(many) and len(few) > 1
    assert BLOCKS[few[0] // 27].groups == 1 < BLOCKS[many[0] // 27].groups

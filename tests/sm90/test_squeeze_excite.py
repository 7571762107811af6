"""squeeze_excite: its library, the rules that choose it, and what the backend offers."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.squeeze_excite import Problem, SqueezeExciteLibrary

from convoy.backends.kernels.sm90 import squeeze_excite
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.squeeze_excite import CHOICES, CHOSEN, SqueezeExciteKernel
from convoy.backends.kernels.sm90.squeeze_excite_clusters import CLUSTERS, MOST_SHARED, cluster_of
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.epilogue import Epilogue
from convoy.ir.squeeze_excite import image_of
from convoy.ir.workload import Workload

from . import fused
from .fused import DEVICE
from .squeeze_excite_cases import activated, cases, made, taken_cases, usual

BASE, *_ = usual()
BOTH = [*usual("float16"), *usual("bfloat16")]
KERNELS = [SqueezeExciteKernel(dtype) for dtype in ("float16", "bfloat16")]
EVERY = set(range(len(CLUSTERS)))


@pytest.fixture(scope="module")
def compiled(toolkit, tmp_path_factory) -> tuple[str, Path]:
    """What the compiler says, and the library."""
    return fused.compiled_with_words(KERNELS[1], toolkit, tmp_path_factory.mktemp("squeeze_excite"))


@pytest.fixture(scope="module")
def library(compiled) -> SqueezeExciteLibrary:
    return SqueezeExciteLibrary(compiled[1])


def changed(base: Workload = BASE, own: dict | None = None, **fields) -> Workload:
    """A workload with other fields of its own and of its products."""
    inner = dataclasses.replace(base.squeeze_excite, **own or {})
    if "c" in fields:
        fields["k"] = fields["c"]
    return dataclasses.replace(base, squeeze_excite=inner, **fields)


@st.composite
def workloads(draw, most_channels=400, most_squeezed=600):
    """Blocks of any size, of activations that the kernel has."""
    size = st.integers(1, 200)
    return made(
        draw(st.integers(1, 300)), (draw(size), draw(size)),
        8 * draw(st.integers(1, most_channels)), draw(st.integers(1, most_squeezed)),
        *(draw(st.sampled_from(chosen)) for chosen in CHOSEN), draw(st.booleans()),
        dtype="bfloat16",
    )  # fmt: skip


def offered(w: Workload) -> set[int]:
    """The places in CLUSTERS that the backend proposes."""
    return fused.offered(w, CHOICES)


def taken(library: SqueezeExciteLibrary, w: Workload) -> set[int]:
    """The places in CLUSTERS that the library runs."""
    return fused.taken(library, Problem.of, w, len(CLUSTERS), CHOICES)


def test_compiles_with_few_spills(compiled):
    fused.check_spills(compiled[0])


def test_exports_the_abi(compiled):
    fused.check_exports(compiled[1], "squeeze_excite")


@given(workloads())
@settings(max_examples=300)
def test_library_takes_what_the_backend_offers(library, w):
    assert taken(library, w) == offered(w)


@given(workloads(most_channels=3000, most_squeezed=12000))
@settings(max_examples=300)
def test_library_takes_large_ones_that_the_backend_offers(library, w):
    assert taken(library, w) == offered(w)


#: Changes to the workloads of networks, none of which the kernel takes.
OTHERS = (
    {"c": 12},
    {"h": 4096, "w": 4096},
    {"c": (1 << 16) + 8},
    {"own": {"channels": (1 << 14) + 1}},
    {"n": 1 << 30},
    {"c": 1 << 16},
)


@pytest.mark.parametrize("w", [w for w in BOTH if w.dtype == "bfloat16"], ids=lambda w: w.key)
@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_neither_takes_others(library, w, fields):
    w = changed(w, **fields)
    assert not offered(w) and not taken(library, w)


@pytest.mark.parametrize("squeezed", [1, 20, 500, 4096, 16384])
def test_offers_fill_shared_memory_and_no_more(library, squeezed):
    """At every number of channels where weights are no longer kept or computed by each block, where
    threads are too few, and where a block's sums no longer fit."""
    found = set()
    for c in (*range(8, 1000, 56), *range(1000, 65536, 1480), 4096, 4104, 65528):
        w = made(2, 3, c, squeezed, dtype="bfloat16")
        fitting = {place for place, blocks in enumerate(CLUSTERS) if cluster_of(w, blocks).fits}
        assert taken(library, w) == fitting == offered(w), w.key
        found.add(bool(fitting))
    assert found == {True, False}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"n": (1 << 26) - 1}, EVERY),
        ({"n": 1 << 26}, EVERY - {4}),
        ({"n": (1 << 30) - 1}, {0}),
        ({"h": 4096, "w": 4095}, EVERY),
        ({"own": {"channels": 1 << 14}}, EVERY),
    ],
    ids=str,
)
def test_the_largest(library, fields, wanted):
    w = changed(BOTH[5], **fields)
    assert offered(w) == taken(library, w) == wanted


@pytest.mark.parametrize("swizzle", [-1, len(CLUSTERS) * CHOICES, 1 << 30])
def test_library_rejects_other_swizzles(library, swizzle):
    assert library.check(Problem.of(BASE, 132, swizzle))


def test_library_takes_all_activations(library):
    assert not any(library.check(Problem.of(BASE, 132, swizzle)) for swizzle in range(CHOICES))


@pytest.mark.parametrize("w", [*cases(100, 5), *taken_cases(100, 5)], ids=lambda w: w.key)
def test_library_takes_the_cases_that_are_offered(library, w):
    half = dataclasses.replace(w, dtype="bfloat16", out_dtype="bfloat16")
    known = zip(squeeze_excite.activations(half), CHOSEN, strict=True)
    if all(activation in chosen for activation, chosen in known):
        assert taken(library, half) == offered(half)
    else:
        assert not offered(half)


def test_there_are_cases_of_the_kernel():
    assert all(sm90_backend().accepts(w, DEVICE) is None for w in [*BOTH, *taken_cases(200, 7)])


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_there_and_back(kernel):
    fused.check_there_and_back(kernel, "squeeze_excite")


def test_all_ship():
    """Where this fails, sources have changed: run tuning/ship_kernels.py on a machine with nvcc."""
    fused.check_shipped(KERNELS)


def test_other_dtypes_have_no_kernel():
    fused.check_dtypes(SqueezeExciteKernel)


def test_swizzles_are_of_the_activations():
    found, (kernel, other) = set(), KERNELS
    for squeeze, gate, y in itertools.product(*CHOSEN):
        w = made(2, 14, 72, 24, squeeze, gate, y, True)
        (number,) = {swizzle % CHOICES for swizzle in squeeze_excite.swizzles(w, DEVICE)}
        places = [k.index(name) for k, name in zip(CHOSEN, (squeeze, gate, y), strict=True)]
        assert number == places[0] + 6 * (places[1] + 2 * places[2])
        found.add(number)
        for swizzle in squeeze_excite.swizzles(w, DEVICE):
            assert fused.why_not(kernel, swizzle, w) == ""
            assert "is of another operation" in fused.why_not(other, swizzle, w)
            assert "other activations" in fused.why_not(kernel, swizzle + 1, w)
    assert found == set(range(CHOICES)) == set(range(36))


def test_it_computes_nothing_else():
    image = image_of(BASE)
    assert "is of another operation" in fused.why_not(KERNELS[0], 0, image)


@pytest.mark.parametrize("w", BOTH, ids=lambda w: w.key)
def test_candidates_are_programmatic(w):
    swizzles = squeeze_excite.swizzles(w, DEVICE)
    fused.check_candidates(w, SqueezeExciteKernel(w.dtype), swizzles, 1, len(CLUSTERS))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"c": 12}, "K = 12"),
        ({"h": 4096, "w": 4096}, "4096x4096 pixels"),
        ({"own": {"channels": 20000}}, "20000 channels: too large"),
        ({"c": 1 << 16}, "exceed shared memory"),
        ({"n": 1 << 30}, "too large"),
        ({"own": {"squeeze_epilogue": activated("tanh")}}, "activation tanh of the first GEMM"),
        ({"own": {"gate_epilogue": activated("relu")}}, "activation relu of the gates"),
        ({"epilogue": activated("silu")}, "activation silu of the result"),
        ({"dtype": "float32", "out_dtype": "float32"}, "must be float16 or bfloat16"),
    ],
    ids=str,
)
def test_what_it_declines(fields, reason):
    declined = sm90_backend().accepts(changed(**fields), DEVICE)
    assert declined is not None and reason in str(declined)


def test_other_architectures_have_none():
    assert sm90_backend().accepts(BASE, dataclasses.replace(DEVICE, arch=80)) is not None


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    """Of each of the three."""
    own = [
        {"squeeze_epilogue": activated(activation, bias=True)},
        {"gate_epilogue": activated(activation)},
    ]
    found = [changed(own=own[0]), changed(own=own[1]), changed(epilogue=activated(activation))]
    for w, chosen in zip(found, CHOSEN, strict=True):
        assert bool(offered(w)) == (activation in chosen)


@given(workloads(), st.sampled_from((78, 132)))
@settings(max_examples=150)
def test_the_guess_grows_with_the_work(w, sm_count):
    device = dataclasses.replace(DEVICE, sm_count=sm_count)
    for blocks in CLUSTERS:
        us = cluster_of(w, blocks).guess_us(w, device)
        assert us > w.bytes_moved / 3e6
        for other in (dataclasses.replace(w, n=w.n + 300), changed(w, h=w.h + 60)):
            assert cluster_of(other, blocks).guess_us(other, device) > us


@pytest.mark.parametrize("n", [1, 8, 32, 200])
def test_the_best_guess_fills_the_device(n):
    w = made(n, 28, 512, 32)
    blocks = n * CLUSTERS[squeeze_excite.swizzles(w, DEVICE)[0] // CHOICES]
    assert min(n * 16, 132) <= blocks <= max(n, 264)


def test_blocks_without_kept_pixels_have_what_the_formula_says():
    """Float32 sums, means, results, gates, biases and partial sums; 16-bit weights."""
    own = cluster_of(made(1, 7, 480, 20), 4)
    assert (own.vectors, own.pixels, own.squeezed) == (15, 49, 20), "each computes all of them"
    floats = 480 + 20 + 120 + 20 + 120 + 8 * 512
    assert own.shared_bytes == 4 * floats + 2 * 20 * 480 + 2 * 120 * 20
    large = cluster_of(made(1, 7, 2400, 200), 4)
    assert (large.vectors, large.squeezed) == (75, 50)
    floats = 2400 + 200 + 600 + 52 + 600 + 8 * 512
    assert large.shared_bytes == 4 * floats, "weights are read from memory"
    assert large.fits and large.shared_bytes <= MOST_SHARED
    narrow = cluster_of(made(1, 28, 24, 8), 16)
    assert (narrow.pixel_parts, narrow.vectors, narrow.pixels) == (16, 3, 49)
    floats = 24 + 16 * 24 + 8 + 24 + 8 + 24 + 8 * 512
    assert narrow.shared_bytes == 4 * floats + 4 * 8 * 24


def test_epilogues_without_biases_are_no_other_kernels():
    bare = {"squeeze_epilogue": Epilogue(activation="silu"), "gate_epilogue": activated("sigmoid")}
    assert offered(changed(own=bare)) == offered(BASE)

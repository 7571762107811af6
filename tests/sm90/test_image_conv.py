"""image_conv: its index arithmetic against the definition, and what the backend offers."""

from __future__ import annotations

import dataclasses
import itertools
import re
import subprocess

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers.kernel_abi.stem import Problem, StemLibrary

from convoy.backends.kernels.compile import compile_kernel, compile_to
from convoy.backends.kernels.sm90 import image
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.image import CHOSEN, TILES, ImageConvKernel
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.errors import InvalidOption, InvalidWorkload
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload
from convoy.measure.reference import full

from . import fused
from .formulas import Formulas, ImageConvAxis, load
from .stem_cases import cases, usual

DEVICE = Device()
BASE = next(usual())
KERNELS = [ImageConvKernel(dtype) for dtype in ("float16", "bfloat16")]
#: Bytes of a pixel in shared memory.
PIXEL = 8


@pytest.fixture(scope="module")
def f() -> Formulas:
    return load()


@pytest.fixture(scope="module")
def library(toolkit) -> StemLibrary:
    return StemLibrary(compile_kernel(KERNELS[0], toolkit=toolkit).path)


def changed(stem: dict | None = None, **fields) -> Workload:
    """BASE with other fields of the workload and of its stem."""
    return dataclasses.replace(BASE, stem=dataclasses.replace(BASE.stem, **stem or {}), **fields)


@st.composite
def workloads(draw, ks=(8, 16), largest=24, taps=5, window=4, cs=(4,)):
    sizes, filters, few = st.integers(1, largest), st.integers(1, taps), st.integers(1, 3)
    pad, windows = st.integers(0, 3), st.integers(1, window)
    pools = draw(st.booleans())
    size = (draw(windows), draw(windows)) if pools else (0, 0)
    try:
        return Workload(
            "stem",
            draw(st.integers(1, 2)),
            draw(sizes),
            draw(sizes),
            draw(st.sampled_from(cs)),
            draw(st.sampled_from(ks)),
            draw(filters),
            draw(filters),
            (draw(few), draw(few)),
            (draw(pad), draw(pad), draw(pad), draw(pad)),
            (draw(few), draw(few)),
            epilogue=Epilogue(bias=draw(st.booleans()), activation="relu"),
            stem=Stem(
                draw(st.integers(1, 4)),
                draw(st.booleans()),
                draw(st.sampled_from(("float16", "float32"))),
                size,
                (draw(windows), draw(windows)) if pools else (1, 1),
                tuple(draw(pad) for _ in range(4)) if pools else (0, 0, 0, 0),
            ),
        )
    except InvalidWorkload:
        assume(False)


def axes_of(w: Workload) -> tuple[ImageConvAxis, ImageConvAxis]:
    """Rows and columns, as the library describes them to the kernel."""
    stem = w.stem
    window = stem.window if stem.pools else (1, 1)
    fields = zip(
        *(stem.pooled(w.p, w.q), (w.p, w.q), (w.h, w.w), window, stem.stride, stem.padding[:2]),
        *(w.stride, w.dilation, w.padding[:2], (w.r, w.s)),
        strict=True,
    )
    rows, columns = (ImageConvAxis(*axis) for axis in fields)
    return rows, columns


def groups_of(w: Workload) -> int:
    return -(-w.taps // 16)


def given_integers(w: Workload) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = w.operand_shapes()[:-1]
    return {name: rng.integers(-4, 5, size).astype(float) for name, size, _ in shapes}


def by_the_kernel(f: Formulas, w: Workload, axes, rows: int, operands) -> np.ndarray:
    """y as the kernel computes it, tile by tile."""
    h, v = axes
    x = operands["x"] if w.stem.channels_last else operands["x"].transpose(0, 2, 3, 1)
    filters = operands["w"].reshape(w.k, w.taps, 4)[..., : w.stem.channels]
    y = np.full(w.operand_shapes()[-1][1], np.nan)
    sums = h.sums * v.sums
    assert sums <= rows
    starts = np.array([f.image_conv_row(axes, m) for m in range(rows)])
    taps = np.array([f.image_conv_tap(axes, tap) for tap in range(w.taps)])
    places = starts[:, None] + taps
    assert not (places % PIXEL).any() and places.max() < h.pixels * v.pixels * PIXEL
    # Rows behind the last sum repeat it.
    assert (starts[sums:] == starts[sums - 1]).all()
    for n, down, across in np.ndindex(w.n, h.tiles, v.tiles):
        spans = [f.image_conv_place(a, i) for a, i in ((h, down), (v, across))]
        patch = patch_of(x[n], [first for _, first, *_ in spans], (h.pixels, v.pixels))
        values = np.einsum("mtc,ktc->mk", patch[places // PIXEL], filters)
        values = np.maximum(values + operands.get("bias", 0.0), 0.0)[:sums]
        windows = [
            window_of(a, i, span) for a, i, span in zip(axes, (down, across), spans, strict=True)
        ]
        (p, lines), (q, columns) = windows
        which = lines[:, None, :, None] * v.sums + columns[None, :, None, :]
        assert np.isnan(y[n, p, q]).all(), "written twice"
        y[n, p, q] = values[which].max((2, 3))
    return y


def patch_of(image: np.ndarray, first, sizes) -> np.ndarray:
    """Pixels from a first one, zeros outside the image."""
    at = [start + np.arange(size) for start, size in zip(first, sizes, strict=True)]
    there = [(i >= 0) & (i < size) for i, size in zip(at, image.shape[:2], strict=True)]
    pixels = image[np.ix_(*(np.where(ok, i, 0) for ok, i in zip(there, at, strict=True)))]
    mask = there[0][:, None] & there[1]
    return np.where(mask[..., None], pixels, 0.0).reshape(-1, image.shape[2])


@given(st.integers(1, 40))
def test_a_thread_has_a_tap_of_each_step(f, groups):
    """Thread t of four multiplies tap t of a step; its taps of a group are one vector."""
    taps = [f.image_conv_tap_in(place) for place in range(16 * groups)]
    assert sorted(taps) == list(range(16 * groups))
    for place, tap in enumerate(taps):
        group, rest = divmod(place, 16)
        thread, step = divmod(rest, 4)
        assert tap == 16 * group + 4 * step + thread


def window_of(a: ImageConvAxis, number: int, span) -> tuple[slice, np.ndarray]:
    """The results of a tile along an axis, and the places of the sums that each is maximal of."""
    _, _, lowest, highest, is_whole = span
    begin = number * a.tile
    end = min(begin + a.tile, a.size)
    sums = np.arange(end - begin)[:, None] * a.step + np.arange(a.window)
    if a.window > 1 and not is_whole:
        sums = np.clip(sums, lowest, highest)
    assert sums.min() >= 0 and sums.max() < a.sums
    return slice(begin, end), sums


def check_against_the_definition(f: Formulas, w: Workload, rows: int, most_bytes: int) -> None:
    axes = f.image_conv_tile(axes_of(w), rows, groups_of(w), most_bytes)
    operands = given_integers(w)
    (wanted,) = full(w, operands)
    np.testing.assert_array_equal(by_the_kernel(f, w, axes, rows, operands), wanted)


@given(workloads(), st.sampled_from(TILES), st.sampled_from((4 << 10, 16 << 10, 128 << 10)))
@settings(max_examples=60)
def test_is_a_convolution_and_its_maxima(f, w, rows, most_bytes):
    check_against_the_definition(f, w, rows, most_bytes)


@pytest.mark.parametrize(
    "w", [dataclasses.replace(w, n=1, k=8) for w in (*usual(), *cases(20, 3))], ids=lambda w: w.key
)
def test_stems_of_networks_and_of_odd_sizes(f, w):
    w = dataclasses.replace(w, epilogue=Epilogue(bias=w.epilogue.bias, activation="relu"))
    for rows in TILES:
        check_against_the_definition(f, w, rows, 64 << 10)


@given(
    workloads(largest=300, taps=12, window=16),
    st.sampled_from(TILES),
    st.integers(0, 64 << 10),
)
@settings(max_examples=200)
def test_tiles_fit_and_cover(f, w, rows, most_bytes):
    axes = axes_of(w)
    found = f.image_conv_tile(axes, rows, groups_of(w), most_bytes)
    if found[0].tile == 0:
        least = [f.image_conv_axis(axis, 1) for axis in axes]
        too_many = least[0].sums * least[1].sums > rows
        assert too_many or least[0].pixels * least[1].pixels * PIXEL > most_bytes
        return
    assert found[0].sums * found[1].sums <= rows
    assert found[0].pixels * found[1].pixels * PIXEL <= most_bytes
    for axis, chosen in zip(axes, found, strict=True):
        assert bytes(chosen) == bytes(f.image_conv_axis(axis, chosen.tile))
        assert (chosen.tiles - 1) * chosen.tile < axis.size <= chosen.tiles * chosen.tile


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_compiles_without_spills(toolkit, tmp_path, kernel):
    words = compile_to(kernel, tmp_path / "kernel.cubin", toolkit, ["-Xptxas=-v", "-cubin"])
    spills = re.findall(r"(\d+) bytes spill", words)
    assert spills and set(spills) == {"0"}, words
    assert "C75" not in words, words  # ptxas: wgmma serialized


def test_exports_the_abi(toolkit):
    library = compile_kernel(KERNELS[0], toolkit=toolkit).path
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r" T convoy_kernel_(\w+)", names)) == {
        *("stem_abi", "stem_check", "stem_prepare", "state_bytes", "launch"),
        *("launch_programmatic", "footprint", "error"),
    }


def taken(library: StemLibrary, w: Workload) -> set[int]:
    """The swizzles that the library runs for the workload's activation."""
    activation = CHOSEN.index(w.epilogue.activation)
    found = (place * len(CHOSEN) + activation for place in range(len(TILES)))
    return {swizzle for swizzle in found if not library.check(Problem.of(w, 132, swizzle))}


def offered(w: Workload) -> set[int]:
    """The swizzles that the backend proposes."""
    found = sm90_backend(64).propose(w, DEVICE)
    if isinstance(found, Decline):
        return set()
    return {sm90_backend().launch_of(candidate).swizzle for candidate in found}


@given(
    st.one_of(
        workloads(ks=(4, 8, 24, 32, 40, 64, 100, 256), largest=300, taps=12, window=18, cs=(3, 4)),
        workloads(ks=(64, 200, 1024), largest=90, taps=36, window=18),
    )
)
@settings(max_examples=300)
def test_library_takes_what_the_backend_offers(library, w):
    assert taken(library, w) == offered(w)


@pytest.mark.parametrize("swizzle", [-1, len(TILES) * len(CHOSEN)])
def test_library_rejects_other_swizzles(library, swizzle):
    assert library.check(Problem.of(BASE, 132, swizzle))


def test_offers_fill_shared_memory_and_no_more(library):
    """Filters that leave little room for pixels."""
    wrong = []
    for blocks in range(180, 212, 2):
        for taps, dilation in itertools.product((1, 2, 3, 4), range(1, 24)):
            w = Workload(
                "stem", 1, 90, 90, 4, 8 * blocks, taps, taps, dilation=(dilation, dilation),
                stem=Stem(3),
            )  # fmt: skip
            if taken(library, w) != offered(w):
                wrong.append(w.key)
    assert not wrong


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_there_and_back(kernel):
    assert kernel_from_json(kernel.to_json()) == kernel
    assert kernel.name in kernel.source and kernel.family == "image_conv"
    w = changed(dtype=kernel.dtype, out_dtype=kernel.dtype)
    assert all(fused.why_not(kernel, s, w) == "" for s in image.swizzles(w, DEVICE))
    other = changed(dtype=kernel.dtype, out_dtype=kernel.dtype, epilogue=Epilogue())
    assert all(fused.why_not(kernel, s, other) for s in image.swizzles(w, DEVICE))
    convolution = dataclasses.replace(w, op="fprop", stem=None)
    assert "is of another operation" in fused.why_not(kernel, 0, convolution)


def test_other_dtypes_have_no_kernel():
    with pytest.raises(InvalidOption):
        ImageConvKernel("float32")
    assert fused.why_not(KERNELS[1], image.swizzles(BASE, DEVICE)[0], BASE)


def test_candidates_are_programmatic():
    backend = sm90_backend()
    found = backend.propose(BASE, DEVICE)
    assert isinstance(found, list) and len(found) == len(TILES)
    for candidate in found:
        assert isinstance(backend.launch_of(candidate).kernel, ImageConvKernel)
        assert backend.is_programmatic(candidate, DEVICE)
    assert [backend.launch_of(c).swizzle for c in found] == image.swizzles(BASE, DEVICE)


@pytest.mark.parametrize(("images", "first"), [(1, 128), (64, 256)])
def test_small_tiles_come_first_where_there_are_few_results(images, first):
    swizzles = image.swizzles(changed(n=images), DEVICE)
    assert [TILES[s // len(CHOSEN)] for s in swizzles] == [first, 384 - first]


@pytest.mark.parametrize(
    ("w", "reason"),
    [
        (changed(c=3), "C = 3"),
        (changed(k=60), "K = 60"),
        (changed(epilogue=Epilogue(activation="tanh")), "activation tanh"),
        (changed({"dtype": "bfloat16"}), "an image of bfloat16"),
        (changed(dtype="float32", out_dtype="float32"), "float32 in"),
        (changed(out_dtype="float32"), "float32 out"),
        (changed(acc_dtype="float16"), "acc_dtype float16"),
        (changed({"window": (17, 2)}), "a pool of (17, 2): too large"),
        (changed({"stride": (1, 17)}), "too large"),
        (changed(r=41, s=41), "1681 taps"),
        (changed(n=1 << 17), "2^30"),
        (changed(k=4096), "exceed shared memory"),
        (changed(dilation=(30, 30)), "exceed shared memory"),
    ],
)
def test_declines_with_the_reason(w, reason):
    decline = sm90_backend().propose(w, DEVICE)
    assert isinstance(decline, Decline) and reason in decline.reason


def test_other_devices_are_declined():
    for arch in (80, 100):
        decline = sm90_backend().accepts(BASE, dataclasses.replace(DEVICE, arch=arch))
        assert decline is not None and f"sm_{arch}" in decline.reason


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_takes_every_activation_but_tanh(activation):
    alpha = 0.1 if activation in WITH_ALPHA else 0.0
    bounds = (0.0, 6.0) if activation == "clip" else (0.0, 0.0)
    epilogue = Epilogue(
        bias=True, activation=activation, clip_min=bounds[0], clip_max=bounds[1], alpha=alpha
    )
    declined = sm90_backend().accepts(changed(epilogue=epilogue), DEVICE)
    assert (declined is None) == (activation in CHOSEN) == (activation != "tanh")

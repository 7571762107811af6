"""The kernels themselves, run on the host: every tile against the definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from convoy.backends.kernels.depthwise import grouped as grouped_rules
from convoy.backends.kernels.depthwise import space, warp_tiles
from convoy.backends.kernels.depthwise import staged as staged_rules
from convoy.backends.kernels.depthwise.family import depthwise_backend
from convoy.backends.kernels.depthwise.kernels import (
    FILTERS,
    ConvKernel,
    GroupedKernel,
    StagedKernel,
    WgradKernel,
)
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

from . import emulated
from .workloads import depthwise, expected, grouped, operands

#: Of the whole result, in the L2 norm: rounding to the type, and float32 sums.
TOLERANCE = {"float16": 8e-4, "float32": 4e-6}
BACKEND = depthwise_backend(limit=99)


@pytest.fixture(scope="module")
def kernels() -> emulated.Kernels:
    return emulated.load()


def conv(op, n, h, w, c, r, s, stride, padding, dilation, k=None, dtype="float16", **epilogue):
    return Workload(
        *(op, n, h, w, c, k or c, r, s, stride, padding, dilation, c, dtype, dtype),
        epilogue=Epilogue(**epilogue),
    )


SILU = {"bias": True, "residual": True, "activation": "silu"}


@settings(max_examples=60)
@given(w=depthwise(), seed=st.integers(0, 99), sm_count=st.sampled_from([1, 4, 132]))
@example(conv("fprop", 1, 9, 30, 8, 7, 7, (1, 1), (3, 3, 3, 3), (1, 1)), 0, 132)
@example(conv("fprop", 2, 14, 14, 24, 5, 5, (2, 2), (1, 2, 2, 1), (1, 1), **SILU), 1, 4)
@example(conv("fprop", 1, 7, 40, 16, 7, 7, (1, 2), (8, 0, 6, 14), (3, 1), **SILU), 2, 132)
@example(conv("fprop", 1, 12, 12, 5, 3, 3, (2, 1), (1, 1, 1, 1), (2, 3), k=15, **SILU), 3, 1)
@example(conv("fprop", 1, 33, 5, 8, 31, 31, (1, 1), (15, 15, 15, 15), (1, 1)), 4, 132)
@example(conv("dgrad", 2, 13, 15, 12, 3, 3, (2, 2), (1, 0, 0, 1), (1, 1)), 5, 132)
@example(conv("dgrad", 1, 9, 9, 8, 1, 1, (2, 2), (0, 0, 0, 0), (1, 1)), 6, 132)
@example(conv("dgrad", 1, 11, 10, 8, 5, 5, (1, 1), (0, 7, 3, 4), (2, 1)), 7, 4)
@example(conv("wgrad", 3, 19, 17, 16, 3, 3, (2, 2), (1, 1, 1, 1), (1, 1)), 8, 4)
@example(conv("wgrad", 2, 16, 16, 6, 9, 4, (1, 1), (4, 4, 4, 4), (1, 2), k=12), 9, 132)
def test_every_tile_is_right(kernels, w, seed, sm_count):
    check_all_tiles(kernels, w, seed, sm_count)


@settings(max_examples=30)
@given(w=grouped(), seed=st.integers(0, 99), sm_count=st.sampled_from([1, 4, 132]))
@example(Workload("fprop", 2, 14, 14, 48, 48, 3, 3, (2, 2), (1, 1, 1, 1), (1, 1), 2), 0, 1)
@example(Workload("fprop", 9, 6, 40, 40, 60, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 5), 1, 1)
@example(Workload("fprop", 3, 9, 34, 12, 128, 1, 5, (1, 1), (0, 2, 0, 2), (1, 1), 2), 2, 4)
def test_every_grouped_tile_is_right(kernels, w, seed, sm_count):
    check_all_tiles(kernels, w, seed, sm_count)


@settings(max_examples=40)
@given(
    w=st.one_of(depthwise(ops=("fprop",)), grouped()),
    seed=st.integers(0, 99),
    around=st.tuples(*[st.sampled_from([0, 8, 24])] * 6),
)
def test_every_tile_takes_slices(kernels, w, seed, around):
    """Of wider tensors, whose other channels are neither read nor written."""
    check_all_tiles(kernels, w, seed, 4, around)


def check_all_tiles(kernels, w, seed, sm_count, around=None):
    """All candidates of a workload, if there are some, against float64; ``around`` are channels
    in front of y, x and the residual, then behind them."""
    found = BACKEND.propose(w, Device())
    if isinstance(found, Decline):
        return
    assert found, "neither candidates nor a reason"
    given = operands(w, seed)
    want = expected(w, given)
    for candidate in found:
        launch = BACKEND.launch_of(candidate)
        if around is None:
            got = kernels.run(launch, w, given, sm_count)
        else:
            got = run_on_slices(kernels, launch, w, given, sm_count, around)
        error = np.linalg.norm(got.astype(np.float64) - want) / max(np.linalg.norm(want), 1e-9)
        assert error < TOLERANCE[w.dtype], f"{launch.label}: {error}"


def run_on_slices(kernels, launch, w, given, sm_count, around):
    """The result where operands are slices of tensors of channels that fill vectors."""
    _, size, _ = w.operand_shapes()[-1]
    whole = {name: given[name] for name in ("x", "residual") if name in given}
    whole["y"] = np.full(size, np.nan, emulated.DTYPES[w.dtype])
    inner = {}
    for name, before, behind in zip(("y", "x", "residual"), around[:3], around[3:], strict=True):
        if name in whole:
            own = whole[name].shape[-1]
            edges = (before, behind + -own % 8)
            wide = np.pad(whole[name], [(0, 0)] * 3 + [edges], constant_values=np.nan)
            inner[name] = wide[..., before : before + own]
            whole[name] = wide
    out = kernels.run(launch, w, {**given, **inner}, sm_count, inner["y"])
    edges = np.delete(whole["y"], range(around[0], around[0] + size[-1]), axis=-1)
    assert np.isnan(edges).all(), "written beyond the slice"
    return out


@settings(max_examples=300)
@given(w=depthwise(), size=st.sampled_from(FILTERS), tile=st.integers(0, 15))
def test_library_and_rules_accept_the_same(kernels, w, size, tile):
    kernel = (WgradKernel if w.op == "wgrad" else ConvKernel)(size, w.dtype)
    launch = space.launch_of(kernel, tile, w.epilogue.activation)
    accepted = BACKEND.accepts(w, Device()) is None and not space.why_not(launch, w, Device())
    assert kernels.check(launch, w) == accepted
    if accepted and w.op == "wgrad":
        assert kernels.workspace(launch, w) == space.workspace_bytes(launch, w, Device())


@pytest.mark.parametrize(
    ("rules", "kind"), [(grouped_rules, GroupedKernel), (staged_rules, StagedKernel)]
)
@settings(max_examples=200)
@given(w=grouped(), tile=st.integers(0, 17))
def test_grouped_library_and_rules_accept_the_same(kernels, rules, kind, w, tile):
    launch = warp_tiles.launch_of(kind(w.dtype), tile, w.epilogue.activation)
    fits = not rules.why_not(launch, w, Device())
    assert kernels.check(launch, w) == (BACKEND.accepts(w, Device()) is None and fits)


def test_grouped_tiles_are_those_of_the_headers(kernels):
    assert kernels.grouped_tiles() == grouped_rules.TILES
    assert kernels.staged_tiles() == staged_rules.TILES


@pytest.mark.parametrize("size", FILTERS)
def test_tiles_are_those_of_the_headers(kernels, size):
    assert kernels.tiles(size, wgrad=False) == space.TILES[size]
    assert kernels.tiles(size, wgrad=True) == space.WGRAD_TILES[size]


def test_results_do_not_change(kernels):
    w = conv("wgrad", 2, 20, 20, 8, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), dtype="float32")
    given = operands(w, 0)
    for candidate in BACKEND.propose(w, Device()):
        launch = BACKEND.launch_of(candidate)
        first, again = (kernels.run(launch, w, given, 16) for _ in range(2))
        assert np.array_equal(first, again)

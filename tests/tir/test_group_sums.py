"""Statistics of group norms: kernels as CUDA run on the CPU against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from convoy.tir.group_sums import GroupSums, affine_kernel, partial_shape, sums_kernel

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET

EPSILON = 1e-5


@settings(max_examples=5, deadline=None)
@given(
    images=st.integers(1, 3),
    rows=st.sampled_from([1, 7, 64, 333]),
    groups=st.sampled_from([1, 2, 5, 8]),
    members=st.sampled_from([1, 2, 3, 4, 8, 12, 40]),
    seed=st.integers(0, 9),
)
@example(1, 333, 1, 520, 0)
@example(2, 64, 5, 12, 1)
@example(2, 64, 8, 1, 2)
def test_kernels(images: int, rows: int, groups: int, members: int, seed: int) -> None:
    channels = groups * members
    sums = GroupSums(images, rows, channels, groups, "float16", EPSILON)
    rng = np.random.default_rng(seed)
    x = (1 + rng.standard_normal((images, rows, channels))).astype("float16")
    gamma, beta = rng.standard_normal((2, channels)).astype("float32")
    functions = {"first": sums_kernel(sums), "second": affine_kernel(sums)}
    built = compile_kernels(functions, TARGET)
    *_, partial = call(built["first"], x, np.full(partial_shape(sums), np.nan, "float32"))
    empty = np.full((images, channels), np.nan, "float32")
    *_, scale, shift = call(built["second"], partial, gamma, beta, empty, empty)
    apart = x.astype("float64").reshape(images, rows, groups, members)
    mean, variance = (f((1, 3), keepdims=True) for f in (apart.mean, apart.var))
    exact = ((apart - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape) * gamma + beta
    got = x.astype("float64") * scale[:, None] + shift[:, None]
    assert np.linalg.norm(got - exact) <= 1e-5 * np.linalg.norm(exact)


@given(
    images=st.integers(1, 64),
    rows=st.integers(1, 1 << 20),
    groups=st.integers(1, 64),
    members=st.integers(1, 2048),
)
def test_blocks_fit_a_gpu(images: int, rows: int, groups: int, members: int) -> None:
    sums = GroupSums(images, rows, groups * members, groups, "float16", EPSILON)
    if sums.fits:
        assert 1 <= sums.lanes * sums.parts <= 1024
        assert 8 * sums.lanes * sums.parts * sums.own <= 48 << 10
        assert images * sums.chunks <= max(images, 2 * 132 + images)

"""Statistics of group norms: kernels as CUDA run on the CPU against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from convoy.tir.group_affine import GroupAffine, affine_kernel
from convoy.tir.group_sums import GroupSums, sums_kernel

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET

EPSILON = 1e-5


@settings(max_examples=5, deadline=None)
@given(
    images=st.integers(1, 3),
    rows=st.sampled_from([1, 7, 64, 333]),
    groups=st.sampled_from([1, 2, 5, 8]),
    members=st.sampled_from([1, 2, 3, 4, 8, 12, 40]),
    dtype=st.sampled_from(["float16", "float32"]),
    seed=st.integers(0, 9),
)
@example(1, 333, 1, 520, "float16", 0)
@example(2, 64, 5, 12, "float32", 1)
@example(2, 64, 8, 1, "float16", 2)
def test_kernels(images: int, rows: int, groups: int, members: int, dtype: str, seed: int) -> None:
    channels = groups * members
    sums = GroupSums(images, rows, channels, groups, dtype)
    affine = GroupAffine(*sums.partial_shape, channels, rows * members, EPSILON)
    rng = np.random.default_rng(seed)
    far = 1 if dtype == "float16" else 1000  # squares of 24 bits have no digits for a deviation
    x = (far + rng.standard_normal((images, rows, channels))).astype(dtype)
    gamma, beta = rng.standard_normal((2, channels)).astype("float32")
    functions = {"first": sums_kernel(sums), "second": affine_kernel(affine)}
    built = compile_kernels(functions, TARGET)
    *_, partial = call(built["first"], x, np.full(sums.partial_shape, np.nan, "float32"))
    empty = np.full((images, channels), np.nan, "float32")
    *_, scale, shift = call(built["second"], partial, gamma, beta, empty, empty)
    apart = x.astype("float64").reshape(images, rows, groups, members)
    mean, variance = (f((1, 3), keepdims=True) for f in (apart.mean, apart.var))
    exact = ((apart - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape) * gamma + beta
    scaled = x.astype("float64") * scale[:, None]
    got = scaled + shift[:, None]  # both rounded to float32
    assert np.linalg.norm(got - exact) <= 1e-6 * np.linalg.norm(scaled)


@given(
    images=st.integers(1, 64),
    rows=st.integers(1, 1 << 20),
    groups=st.integers(1, 64),
    members=st.integers(1, 2048),
)
def test_blocks_fit_a_gpu(images: int, rows: int, groups: int, members: int) -> None:
    sums = GroupSums(images, rows, groups * members, groups, "float16")
    if sums.fits:
        assert 1 <= sums.lanes * sums.parts <= 1024
        assert 8 * sums.lanes * sums.parts * sums.own <= 48 << 10
        assert images * sums.chunks <= max(images, 2 * 132 + images)


@given(st.integers(1, 64), st.integers(1, 1 << 16), st.sampled_from(["float16", "float32"]))
def test_contiguous_groups_are_rows_of_full_blocks(groups: int, size: int, dtype: str) -> None:
    sums = GroupSums.of_contiguous(groups, size, dtype)
    assert sums.fits and sums.shape[0] == groups and np.prod(sums.shape) == groups * size
    if size % 2048 == 0:
        assert sums.lanes * sums.parts == 256 and sums.width == (8 if dtype == "float16" else 4)

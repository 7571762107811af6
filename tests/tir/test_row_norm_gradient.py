"""Gradients of layer norms and softmaxes: kernels run by emulation, against numpy in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.tir.row_norm_gradient import gradient_kernel
from convoy.tir.row_norms import LONGEST_ROW, RowNorm

from ..emulation.kernels import emulate
from ..graph.kernels import TARGET

EPSILON = 1e-5


@settings(max_examples=8, deadline=None)
@given(
    size=st.sampled_from(
        [(1, 2), (3, 7), (9001, 5), (197, 49), (9001, 96), (197, 768), (3, 1000), (2, LONGEST_ROW)]
    ),
    dtype=st.sampled_from(["float16", "float32"]),
    backwards=st.booleans(),
)
def test_kernel(size: tuple[int, int], dtype: str, backwards: bool) -> None:
    rows, columns = size
    norm = RowNorm("layer_norm_gradient", rows, columns, dtype, dtype, EPSILON)
    rng = np.random.default_rng(0)
    x, dy = (
        (k * rng.standard_normal(size) + middle).astype(dtype) for k, middle in ((3, 9), (1, 0))
    )
    gamma = rng.standard_normal(columns).astype("float32")
    dx, mean, rstd = (np.full(s, np.nan, d) for s, d in ((size, dtype), *[(rows, "float32")] * 2))
    *_, dx, mean, rstd = emulate(
        gradient_kernel(norm), TARGET, dy, x, gamma, dx, mean, rstd, backwards=backwards
    )
    x, g = x.astype("float64"), dy.astype("float64") * gamma
    middle = x.mean(1, keepdims=True)
    factor = 1 / np.sqrt(x.var(1, keepdims=True) + EPSILON)
    unit = (x - middle) * factor
    along = unit * (g * unit).mean(1, keepdims=True)
    exact = factor * (g - g.mean(1, keepdims=True) - along)
    error = np.linalg.norm(dx - exact) / np.linalg.norm(factor * g)  # of 2 columns little is left
    assert error < (1e-3 if dtype == "float16" else 2e-5)
    np.testing.assert_allclose(mean, middle[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rstd, factor[:, 0], rtol=1e-4)


@settings(max_examples=4, deadline=None)
@given(
    size=st.sampled_from([(1, 2), (9001, 5), (197, 49), (65, 197), (3, 1000)]),
    dtype=st.sampled_from(["float16", "float32"]),
    backwards=st.booleans(),
)
def test_softmax(size: tuple[int, int], dtype: str, backwards: bool) -> None:
    rng = np.random.default_rng(0)
    dy = rng.standard_normal(size).astype(dtype)
    powers = np.exp(rng.standard_normal(size))
    y = (powers / powers.sum(1, keepdims=True)).astype(dtype)
    kernel = gradient_kernel(RowNorm("softmax_gradient", *size, dtype, dtype))
    *_, dx = emulate(kernel, TARGET, dy, y, np.full(size, np.nan, dtype), backwards=backwards)
    dy, y = dy.astype("float64"), y.astype("float64")
    exact = y * (dy - (dy * y).sum(1, keepdims=True))
    assert np.linalg.norm(dx - exact) / np.linalg.norm(exact) < (
        1e-3 if dtype == "float16" else 1e-5
    )

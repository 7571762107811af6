"""Comparisons of bfloat16 on CPUs: orders, extremes and maxima of windows against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import convoy

from .test_nan import network


def run(emit: Callable[..., relax.Expr], x: np.ndarray) -> list[np.ndarray]:
    built = convoy.build(network(emit, x), "llvm", cache=False)
    return [np.asarray(result) for result in built.session()(x)]


ORDERS = {
    "sort": (lambda x: op.sort(x, 1), lambda x: [np.sort(x, 1)]),
    "argsort": (lambda x: op.argsort(x, 1, dtype="int64"), lambda x: [np.argsort(x, 1)]),
    "topk": (
        lambda x: op.topk(x, 3, 1, dtype="int64"),
        lambda x: [-np.sort(-x, 1)[:, :3], np.argsort(-x, 1)[:, :3]],
    ),
    "topk, values alone": (
        lambda x: op.topk(x, 2, 1, "values", largest=False),
        lambda x: [np.sort(x, 1)[:, :2]],
    ),
    "median": (
        lambda x: op.median(x, [1]),
        lambda x: [np.sort(x, 1)[:, 3], np.argsort(x, 1)[:, 3]],
    ),
    "argmax": (lambda x: op.argmax(x, 1), lambda x: [x.argmax(1)]),
    "argmin": (lambda x: op.argmin(x, 1, True), lambda x: [x.argmin(1, keepdims=True)]),
    "max": (lambda x: op.max(x, 1), lambda x: [x.max(1)]),
    "maximum": (lambda x: op.maximum(x, op.negative(x)), lambda x: [np.maximum(x, -x)]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    emit, expected = ORDERS[name]
    x = np.random.default_rng(0).permutation(35).reshape(5, 7) / 4 - 4
    for got, want in zip(run(emit, x.astype(ml_dtypes.bfloat16)), expected(x), strict=True):
        assert got.dtype == (ml_dtypes.bfloat16 if want.dtype.kind == "f" else "int64")
        np.testing.assert_array_equal(got.astype("float64"), want)


def test_max_pool_keeps_nan() -> None:
    x = np.arange(16).reshape(1, 1, 4, 4).astype(ml_dtypes.bfloat16)
    x[0, 0, 2, 1] = np.nan
    (got,) = run(lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)), x)
    np.testing.assert_array_equal(got[0, 0].astype("float32"), [[5, 7], [np.nan, 15]])

"""Products of a matrix and a few rows of any length, as scheduled for a GPU, against NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from convoy.lower.compile import build_kernels
from convoy.tir.gemv import FEWEST_LANES, Gemv

from ..graph.kernels import TARGET
from .kernels import call, emulated

#: Rows, length and results: few powers of two, primes, lengths that no number of threads divides.
FIXED = [(1, 1584, 136), (2, 16, 1), (1, 24, 3), (3, 296, 7), (1, 1048, 5), (4, 520, 33)]


def drawn(count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(29)
    lengths = (FEWEST_LANES * rng.randint(4, 400) for _ in range(count))
    return [(rng.randint(1, 4), length, rng.randint(1, 70)) for length in lengths]


def product(rows: int, length: int, results: int, dtype: str) -> tirx.PrimFunc:
    x = te.placeholder((rows, length), dtype, name="x")
    w = te.placeholder((results, length), dtype, name="w")
    k = te.reduce_axis((0, length), name="k")
    wide = te.compute(
        (rows, results),
        lambda i, j: te.sum(x[i, k].astype("float32") * w[j, k].astype("float32"), axis=k),
        name="product",
    )
    y = te.compute(wide.shape, lambda i, j: te.max(wide[i, j], tirx.const(0.0, "float32")))
    return te.create_prim_func([x, w, y])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_of_any_length(dtype: str) -> None:
    shapes = FIXED + drawn(8)
    functions = {}
    for i, shape in enumerate(shapes):
        with TARGET:
            scheduled = Gemv().apply(product(*shape, dtype), TARGET, False)
        functions[f"gemv_{i}"] = scheduled.mod["main"].with_attr("global_symbol", f"gemv_{i}")
    with emulated():
        library = build_kernels(tvm.IRModule(functions), TARGET)
    rng = np.random.default_rng(0)
    for i, (rows, length, results) in enumerate(shapes):
        x, w = (rng.uniform(-1, 1, (n, length)).astype(dtype) for n in (rows, results))
        y = np.full((rows, results), np.nan, "float32")
        *_, y = call(library[f"gemv_{i}"], x, w, y, backwards=bool(i % 2))
        want = np.maximum(x.astype("float64") @ w.astype("float64").T, 0)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4, err_msg=str(shapes[i]))

"""Adaptive means over windows of one size and of several."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from ..emulation.network import Emulation
from ..graph.kernels import Case


def means(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Of (n, h, w, c), by the definition."""
    _, h, w, _ = x.shape

    def bounds(i: int, size: int, count: int) -> slice:
        return slice(i * size // count, -(-(i + 1) * size // count))

    return np.stack([
        np.stack([
            x[:, bounds(i, h, rows), bounds(j, w, columns)].mean((1, 2)) for j in range(columns)
        ], axis=1)
        for i in range(rows)
    ], axis=1)  # fmt: skip


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("size", "windows"),
    [((7, 9), (3, 2)), ((8, 6), (4, 3)), ((5, 4), (7, 4)), ((13, 11), (6, 5)), ((9, 10), (1, 3))],
)
def test_means(size, windows, dtype: str, layout: str) -> None:  # type: ignore[no-untyped-def]
    """One kernel, in float32, of data with and without a channel axis in memory last."""
    to = [0, *("NHWC".index(letter) for letter in layout[1:])]
    shape = (2, *size, 16)

    def build(emit, x):  # type: ignore[no-untyped-def]
        return emit(op.nn.adaptive_avg_pool2d(x, windows, layout))

    case = Case("", [tuple(shape[i] for i in to)], [dtype], build, "")
    (x,) = case.inputs()
    emulation = Emulation(place(case.module(), precision=dtype, device=Device(), measure=False))
    (found,) = emulation(x)
    back = [0, *(layout.index(letter) for letter in "HWC")]
    want = means(x.transpose(back).astype("float64"), *windows)
    got = found.astype("float64").transpose(back)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 if dtype == "float16" else 1e-5)
    if layout == "NHWC":
        assert len(emulation.schedule.ops) == 1, [o.name for o in emulation.schedule.ops]

"""Convolutions of one channel with a few taps become sums of shifted data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.short_filters import ShortFilters

from ..graph.nets import run_llvm


def network(
    shape: tuple[int, ...], window: tuple[int, ...], dtype: str = "float32", **attrs: Any
) -> Any:
    """A convolution of an image (n, h, w, c) by filters (k, r, s, c); ``given`` are an input."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType(shape, dtype))
    w = relax.Var("w", relax.TensorType(window, dtype))
    is_given = attrs.pop("given", False)
    filters = w if is_given else relax.const(rng.standard_normal(window).astype(dtype))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w] if is_given else [x]):
        with bb.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            gv = bb.emit_output(op.nn.conv2d(x, filters, **layouts, **attrs))
        bb.emit_func_output(gv)
    return bb.get()


def names(mod: Any) -> list[str]:
    found = [op_name(binding.value) for binding in bindings_of(mod["main"])]
    return [name.removeprefix("relax.") for name in found if name]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_results_are_the_same(data: Any) -> None:
    taps, stride, dilation = (data.draw(st.integers(1, most)) for most in (9, 3, 3))
    padding = [data.draw(st.integers(0, 4)) for _ in range(2)]
    reach = (taps - 1) * dilation + 1
    size = data.draw(st.integers(max(1, reach - sum(padding)), reach + 6))
    is_row = data.draw(st.booleans())
    shape, window = (2, 3, size, 1), (1, 1, taps, 1)
    pads = [0, padding[0], 0, padding[1]]
    strides, steps = [1, stride], [1, dilation]
    if not is_row:
        shape, window = (2, size, 3, 1), (1, taps, 1, 1)
        pads, strides, steps = [padding[0], 0, padding[1], 0], strides[::-1], steps[::-1]
    mod = network(shape, window, padding=pads, strides=strides, dilation=steps)
    changed = ShortFilters()(mod)
    assert ("nn.conv2d" in names(changed)) == (taps == 1)
    image = np.random.default_rng(1).standard_normal(shape).astype("float32")
    got, want = run_llvm(changed, image)[0], run_llvm(mod, image)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert shape_of(changed["main"].body.body) == got.shape


@pytest.mark.parametrize(
    ("shape", "window", "how"),
    [
        ((2, 1, 9, 2), (1, 1, 3, 2), {}),
        ((2, 1, 9, 1), (2, 1, 3, 1), {}),
        ((2, 5, 9, 1), (1, 3, 3, 1), {}),
        ((2, 1, 19, 1), (1, 1, 10, 1), {}),
        ((2, 1, 9, 1), (1, 1, 3, 1), {"given": True}),
        ((1, 1024, 1024, 1), (1, 1, 3, 1), {}),
        ((2, 1, 9, 1), (1, 1, 3, 1), {"out_dtype": "float32", "dtype": "float16"}),
        ((2, 1, 9, 1), (1, 1, 3, 1), {"dtype": "int32", "out_dtype": "int32"}),
    ],
)
def test_others_stay(shape: tuple[int, ...], window: tuple[int, ...], how: dict[str, Any]) -> None:
    mod = network(shape, window, **how)
    assert names(ShortFilters()(mod)) == ["nn.conv2d"]

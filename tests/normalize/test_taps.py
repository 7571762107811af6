"""Filters that see nothing but padding at their ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import shape_of
from convoy.graph.function import calls_of
from convoy.normalize.taps import TrimFilters, unseen

from ..graph.nets import relative_error, run_llvm


@given(st.data())
def test_what_is_left_computes_the_same(data: st.DataObject) -> None:
    size, window = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    extent = dilation * (window - 1) + 1
    before, after = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    after += max(0, extent - size - before - after)
    first, rest = unseen(size, window, stride, dilation, (before, after))
    x, w = np.arange(1.0, size + 1), np.arange(1.0, window + 1) ** 2

    def conv(w: np.ndarray, before: int, after: int) -> list[float]:
        padded = np.pad(x, (before, after))
        reach = dilation * (len(w) - 1) + 1
        starts = range(0, len(padded) - reach + 1, stride)
        return [float(padded[at : at + reach : dilation] @ w) for at in starts]

    left = w[first : window - rest]
    ends = before - first * dilation, after - rest * dilation
    assert min(ends) >= 0 and conv(left, *ends) == conv(w, before, after)


@pytest.mark.parametrize(
    ("size", "window", "attrs", "left", "padding"),
    [
        ((4, 4), (3, 3), {"padding": 1}, (3, 3), (1, 1, 1, 1)),
        ((4, 5), (3, 3), {"padding": 6, "dilation": 6}, (1, 1), (0, 0, 0, 0)),
        ((1, 4, 4), (3, 3, 3), {"padding": 1}, (1, 3, 3), (0, 1, 1, 0, 1, 1)),
        ((2, 4, 4), (3, 3, 3), {"padding": 1, "strides": (2, 1, 1)}, (2, 3, 3), (0, 1, 1, 1, 1, 1)),
    ],
)
def test_convolutions(size, window, attrs, left, padding) -> None:  # type: ignore[no-untyped-def]
    rng, builder, volumes = np.random.default_rng(0), relax.BlockBuilder(), len(size) == 3
    x = relax.Var("x", relax.TensorType((1, *size, 4), "float32"))
    w = relax.const(rng.standard_normal((8, *window, 4)).astype("float32"))
    layouts = ("NDHWC", "ODHWI") if volumes else ("NHWC", "OHWI")
    make = op.nn.conv3d if volumes else op.nn.conv2d
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(make(x, w, data_layout=layouts[0], kernel_layout=layouts[1], **attrs))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    mod = builder.get()
    trimmed = TrimFilters()(mod)
    (call,) = calls_of(trimmed, TrimFilters.ops)
    assert shape_of(call.args[1])[1:-1] == left
    assert tuple(map(int, call.attrs.padding)) == padding
    given_x = rng.standard_normal((1, *size, 4)).astype("float32")
    assert relative_error(run_llvm(trimmed, given_x)[0], run_llvm(mod, given_x)[0]) < 1e-6

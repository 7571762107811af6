"""Zeros in front of convolutions and what is cut off behind them become their padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from ..graph.nets import count_ops
from .test_normalize import check_same, convs


def network(body, shape=(1, 9, 11, 4)):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            outputs = [builder.emit_output(y) for y in body(builder, x)]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def conv(builder, x, seed=0, taps=3, **options):
    shape = (6, taps, taps, int(x.ty.shape.values[3]))
    weights = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return builder.emit(op.nn.conv2d(x, relax.const(weights), **layouts, **options))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_padding_and_slice(data) -> None:
    """Both are gone where that is possible; the values are the same in any case."""
    front = [data.draw(st.integers(0, 3)) for _ in range(4)]
    own = tuple(data.draw(st.integers(0, 3)) for _ in range(4))
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    axis = data.draw(st.sampled_from([1, 2]))
    depth = data.draw(st.integers(0, 2))

    def body(builder, x):
        x = builder.emit(op.nn.pad(x, [0, 0, *front, 0, 0]))
        y = conv(builder, x, strides=stride, padding=own, dilation=dilation)
        for _ in range(depth):
            y = builder.emit(op.nn.relu(builder.emit(op.add(y, relax.const(0.5, "float32")))))
        size = int(y.ty.shape.values[axis])
        begin = data.draw(st.integers(0, size - 1))
        end = data.draw(st.integers(begin + 1, size))
        return [builder.emit(op.strided_slice(y, [axis], [begin], [end]))]

    normal = check_same(network(body))
    assert "relax.nn.pad" not in count_ops(normal)


@pytest.mark.parametrize("taps", [2, 3])
def test_causal_convolutions_are_convolutions(taps: int) -> None:
    def body(builder, x):
        pad = 2 * (taps - 1)
        y = conv(builder, x, 0, taps, padding=(0, pad), dilation=(1, 2))
        y = builder.emit(op.nn.relu(builder.emit(op.strided_slice(y, [2], [0], [-pad]))))
        y = builder.emit(op.nn.pad(y, [0, 0, 0, 0, pad, 0, 0, 0]))
        return [conv(builder, y, 1, taps, dilation=(1, 2))]

    normal = check_same(network(body))
    assert not {"relax.nn.pad", "relax.strided_slice"} & count_ops(normal).keys()
    assert [tuple(c.attrs.padding) for c in convs(normal)] == [(0, 2 * (taps - 1), 0, 0)] * 2


def test_what_others_read_is_not_computed_twice() -> None:
    def body(builder, x):
        y = conv(builder, x, padding=1)
        return [builder.emit(op.strided_slice(y, [1], [0], [4])), builder.emit(op.nn.relu(y))]

    normal = check_same(network(body))
    assert len(convs(normal)) == 1 and "relax.strided_slice" in count_ops(normal)


@pytest.mark.parametrize("pad", [{"pad_value": 1.0}, {"pad_mode": "reflect"}])
def test_other_values_stay(pad: dict) -> None:
    def body(builder, x):
        return [conv(builder, builder.emit(op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0], **pad)))]

    normal = check_same(network(body))
    assert "relax.nn.pad" in count_ops(normal)

"""Convolutions to few channels as sums of patches, by their values and by where it pays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.lower.executable import lower
from convoy.normalize import few_outputs
from convoy.normalize.few_outputs import FoldFewOutputs
from convoy.ops import conv2d_dgrad

from ..graph.nets import count_ops, relative_error


def network(shape, kernel, dtype="float16", size=None, **options):
    """A convolution, or a transposed one to an image of a size."""
    weights = np.random.default_rng(0).standard_normal(kernel).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    filters = relax.const(tvm.runtime.tensor(weights.astype(dtype)), dtype)
    with builder.function("main", [x]):
        with builder.dataflow():
            if size:
                y = conv2d_dgrad(x, filters, size, **options)
            else:
                layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
                y = op.nn.conv2d(x, filters, **layouts, **options)
            result = builder.emit_output(builder.emit(y))
        builder.emit_func_output(result)
    return builder.get()


def agree(mod):
    changed = FoldFewOutputs()(mod)
    assert count_ops(changed)["relax.convoy.fold"] == 1
    x = np.random.default_rng(1).standard_normal([int(d) for d in mod["main"].params[0].ty.shape])
    want, got = (
        relax.VirtualMachine(lower(m, "llvm"), tvm.cpu())["main"](
            tvm.runtime.tensor(x.astype("float16"))
        ).numpy()
        for m in (mod, changed)
    )
    assert want.shape == got.shape
    assert relative_error(got.astype("float64"), want.astype("float64")) < 2e-3


@settings(max_examples=12, deadline=None)
@given(
    filters=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(2, 7)),
    size=st.tuples(st.integers(4, 9), st.integers(7, 15)),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 2), st.integers(0, 9)),
    stride=st.integers(1, 2),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
@example((3, 3, 3), (6, 8), (1, 1, 1, 1), 1, (1, 1))
def test_any_convolution(filters, size, pads, stride, dilation) -> None:
    k, r, s = filters
    pads = (pads[0], min(pads[1], (s - 1) * dilation[1]), *pads[2:])
    reach = [(n - 1) * d + 1 for n, d in zip((r, s), dilation, strict=True)]
    size = [max(n, m) for n, m in zip(size, reach, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_outputs, "_LEAST_GAIN", 0.0)
        options = {"strides": (stride, 1), "padding": pads, "dilation": dilation}
        agree(network((2, *size, 5), (k, r, s, 5), **options))


@settings(max_examples=8, deadline=None)
@given(
    filters=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
    size=st.tuples(st.integers(5, 17), st.integers(5, 17)),
    padding=st.integers(0, 2),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.integers(1, 2),
)
@example((3, 4, 4), (16, 16), 1, (2, 2), 1)
def test_any_transposed_convolution(filters, size, padding, strides, dilation) -> None:
    c, r, s = filters
    options = {"strides": strides, "padding": padding, "dilation": dilation}
    reach = [(n - 1) * dilation + 1 for n in (r, s)]
    size = [max(n, m) for n, m in zip(size, reach, strict=True)]
    outputs = [(n + 2 * padding - m) // d + 1 for n, m, d in zip(size, reach, strides, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_outputs, "_LEAST_GAIN", 0.0)
        agree(network((2, *outputs, 6), (6, r, s, c), size=size, **options))


@pytest.mark.parametrize(
    ("shape", "kernel", "pays"),
    [
        pytest.param((1, 256, 256, 64), (3, 7, 7, 64), True, id="generator"),
        pytest.param((1, 384, 384, 64), (3, 9, 9, 64), True, id="super_resolution"),
        pytest.param((8, 512, 512, 128), (3, 3, 3, 128), True, id="decoder"),
        pytest.param((1, 32, 32, 64), (3, 3, 3, 64), False, id="small_image"),
        pytest.param((8, 56, 56, 64), (64, 3, 3, 64), False, id="many_outputs"),
        pytest.param((8, 256, 256, 64), (21, 1, 1, 64), False, id="one_tap"),
    ],
)
def test_where_it_is_less_work(shape, kernel, pays) -> None:
    mod = network(shape, kernel, padding=(kernel[1] - 1) // 2)
    changed = FoldFewOutputs()(mod)
    assert ("relax.convoy.fold" in count_ops(changed)) == pays


def test_the_last_layer_of_a_generator_from_noise() -> None:
    options = {"strides": (2, 2), "padding": 1}
    mod = network((64, 32, 32, 64), (64, 4, 4, 3), size=(64, 64), **options)
    changed = count_ops(FoldFewOutputs()(mod))
    assert changed["relax.convoy.fold"] == changed["relax.nn.conv2d"] == 1


def test_float32_is_left() -> None:
    mod = network((1, 256, 256, 64), (3, 7, 7, 64), "float32")
    assert "relax.convoy.fold" not in count_ops(FoldFewOutputs()(mod))

"""One-dimensional networks compute as images of height 1 what they did, mostly without copies."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.normalize.height_one import HeightOne
from convoy.normalize.normal_form import normalize

from ..graph.nets import count_ops, random_inputs, relative_error, run_llvm
from .test_normalize import check_same, run_normal


class Sequence:
    """A network of values (n, c, w) or (n, w, c), with random weights."""

    def __init__(self, shape: tuple[int, int, int], layout: str, seed: int) -> None:
        self.layout, self.rng = layout, np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        n, c, w = shape
        sizes = (n, c, w) if layout == "NCW" else (n, w, c)
        self.x = relax.Var("x", relax.TensorType(sizes, "float32"))

    def const(self, *shape: int) -> relax.Expr:
        scale = 1.0 / math.sqrt(max(1, math.prod(shape[1:])))
        return relax.const((scale * self.rng.standard_normal(shape)).astype("float32"))

    def emit(self, expr: relax.Expr) -> relax.Expr:
        return self.builder.emit(self.builder.normalize(expr))

    def size(self, x: relax.Expr, letter: str) -> int:
        return int(x.ty.shape.values[self.layout.index(letter)])

    def vector(self, size: int) -> relax.Expr:
        return self.const(*((1, size, 1) if self.layout == "NCW" else (size,)))


@st.composite
def networks(draw: st.DrawFn) -> relax.Expr:
    layout = draw(st.sampled_from(["NCW", "NWC"]))
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 4, 8])), draw(st.integers(9, 20)))
    net = Sequence(shape, layout, draw(st.integers(0, 99)))
    with net.builder.function("main", [net.x]):
        with net.builder.dataflow():
            x = convolution(net, net.x, draw)
            for _ in range(draw(st.integers(1, 5))):
                x = draw(st.sampled_from(LAYERS))(net, x, draw)
            result = net.builder.emit_output(x)
        net.builder.emit_func_output(result)
    return net.builder.get()


def convolution(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    c, w = net.size(x, "C"), net.size(x, "W")
    groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
    k = groups * draw(st.integers(1, 3))
    taps = draw(st.integers(1, min(4, w)))
    dilation = draw(st.integers(1, 2)) if 2 * taps <= w else 1
    options = {
        "strides": draw(st.integers(1, 3)),
        "padding": (draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        "dilation": dilation, "groups": groups, "data_layout": net.layout,
    }  # fmt: skip
    if draw(st.booleans()) and net.layout == "NCW" and dilation == 1 and taps > 3:
        options |= {"output_padding": draw(st.integers(0, options["strides"] - 1))}
        weights = net.const(c, k // groups, taps)
        y = net.emit(op.nn.conv1d_transpose(x, weights, **options))
    else:
        y = net.emit(op.nn.conv1d(x, net.const(k, c // groups, taps), **options))
    return net.emit(op.add(y, net.vector(k))) if draw(st.booleans()) else y


def activation(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    return net.emit(draw(st.sampled_from([op.nn.relu, op.nn.gelu, op.sigmoid, op.tanh]))(x))


def pool(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    size = draw(st.integers(1, min(3, net.size(x, "W"))))
    make = draw(st.sampled_from([op.nn.max_pool1d, op.nn.avg_pool1d]))
    return net.emit(make(x, size, draw(st.integers(1, 2)), layout=net.layout))


def residual(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    other = activation(net, x, draw)
    if draw(st.booleans()):
        axis = net.layout.index(draw(st.sampled_from(["C", "W"])))
        return net.emit(op.concat([x, other], axis=axis))
    return net.emit(draw(st.sampled_from([op.add, op.multiply, op.maximum]))(x, other))


def pieces(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    axis, w = net.layout.index("W"), net.size(x, "W")
    if draw(st.booleans()) and w > 1:
        begin = draw(st.integers(0, w - 1))
        return net.emit(op.strided_slice(x, [axis], [begin], [draw(st.integers(begin + 1, w))]))
    width = [0] * 6
    width[2 * axis : 2 * axis + 2] = [draw(st.integers(0, 2)), 1]
    return net.emit(op.nn.pad(x, width))


def softmax(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    return net.emit(op.nn.softmax(x, axis=draw(st.integers(-2, 2))))


def attention_like(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    """Channels last for a product of matrices, and back."""
    c = net.size(x, "C")
    turned = net.emit(op.permute_dims(x, [0, 2, 1])) if net.layout == "NCW" else x
    y = net.emit(op.matmul(turned, net.const(c, c)))
    return net.emit(op.permute_dims(y, [0, 2, 1])) if net.layout == "NCW" else y


def squeeze(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    axis = net.layout.index("W")
    return net.emit(op.multiply(x, net.emit(op.sigmoid(op.mean(x, [axis], keepdims=True)))))


def group_norm(net: Sequence, x: relax.Expr, draw: st.DrawFn) -> relax.Expr:
    c, channel = net.size(x, "C"), net.layout.index("C")
    groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
    axes = [net.layout.index("W")]
    return net.emit(
        op.nn.group_norm(x, net.const(c), net.const(c), groups, channel, axes, epsilon=0.1)
    )


LAYERS = [
    group_norm,
    convolution,
    activation,
    pool,
    residual,
    pieces,
    softmax,
    attention_like,
    squeeze,
]


@settings(max_examples=15, deadline=None)
@given(networks())
def test_random_networks_compute_the_same(mod) -> None:
    normal = check_same(mod)
    assert not {"relax.nn.conv1d", "relax.nn.conv1d_transpose"} & count_ops(normal).keys()


def chain(layout: str = "NCW") -> Sequence:
    """Convolution, bias, relu, pool, convolution, mean over the sequence, matmul."""
    net = Sequence((2, 8, 24), layout, 0)
    with net.builder.function("main", [net.x]):
        with net.builder.dataflow():
            y = net.emit(op.nn.conv1d(net.x, net.const(16, 8, 3), data_layout=layout))
            y = net.emit(op.nn.relu(net.emit(op.add(y, net.vector(16)))))
            y = net.emit(op.nn.max_pool1d(y, 2, 2, layout=layout))
            y = net.emit(op.nn.conv1d(y, net.const(8, 16, 3), strides=2, data_layout=layout))
            y = net.emit(op.mean(y, [layout.index("W")]))
            result = net.builder.emit_output(op.matmul(y, net.const(8, 5)))
        net.builder.emit_func_output(result)
    return net


def test_a_chain_of_layers_has_no_transposition_but_the_inputs() -> None:
    for layout, most in (("NCW", 1), ("NWC", 0)):
        mod = chain(layout).builder.get()
        normal = normalize(mod, dtype="float32")
        assert count_ops(normal).get("relax.nn.conv2d", 0) == 2
        assert count_ops(normal).get("relax.permute_dims", 0) == most
        inputs = random_inputs(mod)
        (got,), (want,) = run_normal(normal, *inputs), run_llvm(mod, *inputs)
        assert relative_error(got, want) < 1e-5


def test_networks_without_such_convolutions_stay_as_they_are() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 8, 1, 24), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.reshape(x, (2, 8, 24)))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    mod = builder.get()
    assert HeightOne()(mod) is mod

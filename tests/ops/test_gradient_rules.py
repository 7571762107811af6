"""Gradients of activations, norms and operators that move elements, against central differences of
the same operators compiled by stock TVM in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.ops import activation

from ..helpers.stock import machine
from .test_gradient import close, differentiated, gradients, numeric

PICTURE = (2, 4, 4, 3)


def _places(values):
    return relax.const(values, "int64")


def _halved(x):
    return op.multiply(x, relax.const(0.5, x.ty.dtype))


def _halves(x):
    both = op.split(x, 2, 0)
    return [relax.TupleGetItem(both, i) for i in range(2)]


def _above(x, bound):
    return op.greater(x, relax.const(bound, x.ty.dtype))


def _large(x):
    return op.multiply(x, relax.const(8.5, x.ty.dtype))


def _integers(x):
    return op.astype(_large(x), "int32")


def _times(x, number):
    return op.multiply(x, op.astype(number, x.ty.dtype))


def resize(size, layout="NCHW", **options):
    return lambda x: op.image.resize2d(x, size, layout=layout, **options)


CASES = {
    "clip": ([PICTURE], lambda x: op.clip(x, -0.25, 0.5)),
    "leakyrelu": ([PICTURE], lambda x: op.nn.leakyrelu(x, 0.2)),
    "prelu": ([PICTURE, (4,)], lambda x, a: op.nn.prelu(x, a, 1)),
    "prelu of the last axis": ([PICTURE, (3,)], lambda x, a: op.nn.prelu(x, a, -1)),
    "gelu": ([PICTURE], op.nn.gelu),
    "gelu_tanh": ([PICTURE], op.nn.gelu_tanh),
    "softplus": ([PICTURE], lambda x: op.nn.softplus(x, 1.5)),
    "erf": ([PICTURE], op.erf),
    "rsqrt": ([PICTURE], lambda x: op.rsqrt(op.add(op.square(x), _half(x)))),
    "where": (
        [(4, 1), (3,), (2, 4, 3)],
        lambda a, b, c: op.where(_above(c, 0.25), a, op.where(_above(b, 0.5), b, c)),
    ),
    "split": ([(4, 3)], lambda x: op.multiply(*_halves(x))),
    "split into one part, no tuple": ([(4, 3)], lambda x: op.multiply(op.split(x, 1, 0), x)),
    "slice": ([PICTURE], lambda x: op.strided_slice(x, [1, 3], [1, 0], [3, 2])),
    "slice with strides": (
        [(3, 7, 5)], lambda x: op.strided_slice(x, [1, 2], [1, 0], [7, 5], [3, 2]),
    ),
    "slice from the end": ([(3, 7)], lambda x: op.strided_slice(x, [-1], [-4], [-1])),
    "take one": ([PICTURE], lambda x: op.take(x, relax.const(2, "int64"), 1)),
    "take the last": ([PICTURE], lambda x: op.take(x, relax.const(-1, "int64"), -1, "wrap")),
    "take several": ([(5, 3)], lambda x: op.take(x, relax.const([3, 0, 3], "int64"), 0)),
    "take a table": ([(2, 4, 3)], lambda x: op.take(x, _places([[3, 0, 3], [1, 3, 0]]), 1)),
    "take what is computed": ([(5, 3)], lambda x: op.take(x, op.argmax(x, 1), 0)),
    "gather elements": (
        [(3, 4)], lambda x: op.gather_elements(x, _places([[0, 2, 2], [1, 1, 1]]), 1),
    ),
    "gather points": ([(3, 4, 2)], lambda x: op.gather_nd(x, _places([[0, 2], [1, 1], [0, 2]]))),
    "scatter elements": (
        [(3, 4), (2, 4)],
        lambda x, u: op.scatter_elements(x, _places([[2, 0, 1, 1], [0, 1, 2, 0]]), u, 0),
    ),
    "scatter and add": (
        [(3, 4), (2, 4)],
        lambda x, u: op.scatter_elements(x, _places([[2, 0, 1, 1], [2, 1, 1, 1]]), u, 0, "add"),
    ),
    "scatter points": (
        [(3, 4), (2, 4)], lambda x, u: op.scatter_nd(x, _places([[2], [0]]), u, "update"),
    ),
    "add points": (
        [(3, 4), (3, 4)], lambda x, u: op.scatter_nd(x, _places([[2], [0], [2]]), u, "add"),
    ),
    "scatter a slice": (
        [(3, 7), (3, 3)], lambda x, u: relax.op.slice_scatter(x, u, 1, 6, 2, axis=1),
    ),
    "sort": ([(3, 4)], lambda x: op.sort(x, 0, True)),
    "largest": ([(3, 5)], lambda x: op.topk(x, 2, 1)[0]),
    "rows times a matrix": ([(2, 3, 2, 4), (4, 5)], op.matmul),
    "flip": ([(3, 5)], lambda x: op.flip(x, 1)),
    "triangle": ([(4, 4)], lambda x: op.tril(x, -1)),
    "max": ([PICTURE], lambda x: op.max(x, [1, -1])),
    "min of all": ([(3, 4)], lambda x: op.min(x, keepdims=True)),
    "product": ([(3, 4)], lambda x: op.prod(x, 1)),
    "products with zeros": ([(3, 4)], lambda x: op.prod(op.nn.relu(x), 1)),
    "deviation": ([(3, 4)], lambda x: op.std(x, [1], keepdims=True)),
    "functions": ([(3, 4)], lambda x: op.add(op.add(op.tan(x), op.asin(_halved(x))),
                                             op.add(op.acos(_halved(x)), op.atan(x)))),
    "hyperbolic functions": (
        [(3, 4)], lambda x: op.add(op.add(op.sinh(x), op.cosh(x)),
                                   op.add(op.asinh(x), op.atanh(_halved(x)))),
    ),
    "conditions": (
        [(3, 4)],
        lambda x: op.where(op.logical_not(op.logical_and(_above(x, -0.5), op.isfinite(op.log(x)))),
                           op.multiply(x, x), x),
    ),
    "adaptive mean, uneven": ([PICTURE], lambda x: op.nn.adaptive_avg_pool2d(x, (3, 2))),
    "adaptive mean of lines": ([(2, 3, 7)], lambda x: op.nn.adaptive_avg_pool1d(x, 3)),
    "mean of lines": (
        [(2, 3, 7)], lambda x: op.nn.avg_pool1d(x, 3, 2, (1, 2), count_include_pad=True),
    ),
    "mean of volumes": (
        [(1, 2, 5, 4, 3)],
        lambda x: op.nn.avg_pool3d(x, (3, 2, 2), (2, 2, 1), (1, 0, 1), ceil_mode=True),
    ),
    "maximum of lines": ([(2, 3, 7)], lambda x: op.nn.max_pool1d(x, 3, 2, 1, 2)),
    "maximum of volumes": (
        [(1, 2, 5, 4, 4)],
        lambda x: op.nn.max_pool3d(x, (2, 3, 2), (2, 2, 1), (1, 1, 0), ceil_mode=True),
    ),
    "tile": ([(2, 3)], lambda x: op.tile(x, [2, 1, 3])),
    "tile, fewer numbers": ([(2, 3, 2)], lambda x: op.tile(x, [2, 3])),
    "steps": ([PICTURE], lambda x: op.multiply(x, op.floor(op.multiply(x, op.sign(x))))),
    "arange": ([(4, 3)], lambda x: op.multiply(x, op.arange(0, 3, 1, x.ty.dtype))),
    "pad": ([PICTURE], lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 0, 3])),
    "pad, cut off": ([PICTURE], lambda x: op.nn.pad(x, [0, 0, 0, -1, -2, 1, 1, -1])),
    "stack": ([(2, 3), (2, 3)], lambda x, y: op.stack([x, y], 1)),
    "stack of one": ([(2, 3)], lambda x: op.stack([op.square(x)], 1)),
    "join": ([(2, 3), (2, 1), (2, 2)], lambda *parts: op.concat(parts, -1)),
    "join one": ([(2, 3)], lambda x: op.concat([op.square(x)], 1)),
    "integers": ([(3, 4)], lambda x: op.multiply(_large(x), _times(x, _integers(x)))),
    "remainders": (
        [(3, 4)], lambda x: _times(x, op.floor_mod(_integers(x), relax.const(3, "int32"))),
    ),
    "truth values": ([(3, 4)], lambda x: _times(x, op.astype(_integers(x), "bool"))),
    "nearest": (
        [PICTURE], resize((8, 9), method="nearest_neighbor",
                          coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    ),
    "nearest, no whole factor": ([PICTURE], resize((7, 2), method="nearest_neighbor")),
    "linear": ([PICTURE], resize((7, 6), method="linear")),
    "linear, corners aligned, channels last": (
        [(2, 4, 3, 2)],
        resize((6, 7), "NHWC", method="linear", coordinate_transformation_mode="align_corners"),
    ),
    "cubic": ([PICTURE], resize((7, 6), method="cubic")),
}  # fmt: skip

#: Inputs and filters of convolutions over one and three dimensions, and their attributes.
CONVOLUTIONS = {
    "conv1d": ([(2, 4, 9), (6, 4, 3)], {"strides": 2, "padding": 1}),
    "conv1d, some input left over": ([(2, 4, 10), (3, 4, 3)], {"strides": 3}),
    "conv1d, groups": ([(2, 4, 9), (6, 2, 3)], {"groups": 2, "dilation": 2, "padding": (1, 3)}),
    "conv1d, channels last": (
        [(2, 9, 4), (3, 3, 4)],
        {"data_layout": "NWC", "kernel_layout": "OWI", "strides": 2, "padding": 1},
    ),
    "conv1d, much padding": ([(2, 4, 5), (3, 4, 1)], {"padding": 2, "strides": 2}),
    "conv3d": ([(2, 3, 4, 5, 3), (4, 3, 3, 3, 2)], {"padding": (1, 0, 1, 1, 1, 0)}),
    "conv3d, strides": ([(1, 2, 5, 6, 4), (3, 2, 2, 3, 1)], {"strides": (1, 2, 3)}),
    "conv3d, dilation and groups": (
        [(2, 4, 5, 4, 5), (4, 2, 2, 2, 2)], {"dilation": (2, 1, 3), "groups": 2},
    ),
    "conv1d_transpose": (
        [(2, 4, 5), (4, 3, 3)], {"strides": 2, "padding": 1, "output_padding": 1, "groups": 2},
    ),
    "conv1d_transpose, dilation": ([(2, 4, 5), (4, 3, 3)], {"padding": (0, 1), "dilation": 2}),
    "conv3d_transpose": ([(1, 2, 3, 2, 3), (2, 3, 2, 3, 2)], {"strides": (2, 1, 2), "padding": 1}),
    "conv3d, every channel by itself": (
        [(2, 3, 4, 4, 4), (3, 1, 3, 3, 3)], {"groups": 3, "padding": 1, "strides": 2},
    ),
}  # fmt: skip


def normalized(x, g, b, axes, epsilon=1e-5):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon) * g + b


def groups_of_two(x, g, b):
    """Channels in second place."""
    n, c = x.shape[:2]
    y = normalized(x.reshape(n, c // 2, 2, -1), 1.0, 0.0, (2, 3)).reshape(x.shape)
    return y * g.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)


#: Operators that stock TVM does not compile in float64, with the same in numpy.
NORMS = {
    "layer_norm": (
        [PICTURE, (3,), (3,)], lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]),
        lambda x, g, b: normalized(x, g, b, (3,)),
    ),
    "layer_norm of two axes": (
        [PICTURE, (4, 3), (4, 3)], lambda x, g, b: op.nn.layer_norm(x, g, b, [2, 3]),
        lambda x, g, b: normalized(x, g, b, (2, 3)),
    ),
    "layer_norm without parameters": (
        [PICTURE, (3,), (3,)],
        lambda x, g, b: op.nn.layer_norm(x, g, b, [-1], center=False, scale=False),
        lambda x, g, b: normalized(x, 1.0, 0.0, (3,)),
    ),
    "instance_norm": (
        [PICTURE, (4,), (4,)], lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda x, g, b: normalized(x, g.reshape(4, 1, 1), b.reshape(4, 1, 1), (2, 3)),
    ),
    "group_norm": (
        [PICTURE, (4,), (4,)], lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        groups_of_two,
    ),
    "group_norm, channels last": (
        [(2, 3, 3, 4), (4,), (4,)], lambda x, g, b: op.nn.group_norm(x, g, b, 2, 3, [1, 2]),
        lambda x, g, b: groups_of_two(x.transpose(0, 3, 1, 2), g, b).transpose(0, 2, 3, 1),
    ),
}  # fmt: skip
#: Activations of Convoy, and those that stock TVM does not compile in float64.
ACTIVATIONS = {
    "silu": (op.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "hardswish": (activation.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "elu": (lambda x: activation.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "mish": (activation.mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
}
#: Resizing is linear, and computed in float32 in every dtype: it is checked with a large step.
LINEAR_STEP = 0.25


def _half(like):
    return relax.const(0.5, like.ty.dtype)


def forward(build, shapes):
    """The operator in float64, as a function of numpy arrays."""
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float64")) for i, s in enumerate(shapes)]
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            y = bb.emit_output(build(*params))
        bb.emit_func_output(y)
    main = machine(bb.get())["main"]
    return lambda *arrays: main(*map(tvm.runtime.tensor, arrays)).numpy()


def check(build, shapes, exact, step):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in shapes]
    mod, shape = differentiated(lambda bb, *xs: bb.emit(build(*xs)), shapes)
    t = rng.uniform(-1, 1, shape).astype(np.float32)
    found = gradients(mod, *arrays, t)
    for got, want in zip(found, numeric(exact, arrays, t, step), strict=True):
        close(got, want, 2e-5)


def test_deviation_of_equal_elements_has_a_gradient_of_zero():
    mod, shape = differentiated(lambda bb, x: bb.emit(op.std(x, [1])), [(2, 3)])
    x = np.array([[0, 1, 2], [5, 5, 5]], np.float32)
    (found,) = gradients(mod, x, np.ones(shape, np.float32))
    close(found, np.array([[-1, 0, 1], [0, 0, 0]]) / 6**0.5, 2e-5)


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    shapes, build = CASES[name]
    resized = any(word in name for word in ("nearest", "linear", "cubic"))
    check(build, shapes, forward(build, shapes), LINEAR_STEP if resized else 1e-5)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradient_of_convolution(name):
    shapes, attrs = CONVOLUTIONS[name]
    operator = getattr(op.nn, name.split(",")[0])

    def build(x, w):
        return operator(x, w, **attrs)

    check(build, shapes, forward(build, shapes), 1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient_of_activation(name):
    build, exact = ACTIVATIONS[name]

    def wide(x):
        return build(op.multiply(x, relax.const(4.0, x.ty.dtype)))

    check(wide, [PICTURE], lambda x: exact(4 * x), 1e-5)


@pytest.mark.parametrize("name", NORMS)
def test_gradient_of_norm(name):
    shapes, build, exact = NORMS[name]
    check(build, shapes, exact, 1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_mode="reflect"),
        lambda x: op.strided_slice(x, [3], [2], [0], [-1]),
    ],
    ids=["reflected padding", "backwards"],
)
def test_what_has_no_gradient_says_so(build):
    with pytest.raises(RuntimeError, match="got the gradient"):
        differentiated(lambda bb, x: bb.emit(build(x)), [PICTURE])

"""Operators of Relax in numpy, in the precision of their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erf
from tvm import relax

from convoy.graph.expr import ints, permutation_of, shape_of

Array = np.ndarray[Any, np.dtype[Any]]


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _reshaped(call: relax.Call, x: Array) -> Array:
    return x.reshape(shape_of(call))


def _slice(call: relax.Call, x: Array) -> Array:
    axes, begins, ends = ([int(field) for field in bound.fields] for bound in call.args[1:4])
    cut = [slice(None)] * x.ndim
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        cut[axis] = slice(begin, end)
    return x[tuple(cut)]


def _over_axes(reduce: Callable[..., Any]) -> Callable[[relax.Call, Array], Array]:
    def reduced(call: relax.Call, x: Array) -> Array:
        axes = None if call.attrs.axis is None else tuple(ints(call.attrs.axis))
        return np.asarray(reduce(x, axis=axes, keepdims=bool(call.attrs.keepdims)))

    return reduced


def _activation(function: Callable[[Array], Array]) -> Callable[[relax.Call, Array], Array]:
    return lambda call, x: function(x)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _windows(call: relax.Call, x: Array, size: tuple[int, ...], fill: float) -> Array:
    """The (N, C, P, Q, R, S) values that a window of (R, S) covers at each place of an image."""
    top, left, bottom, right = ints(call.attrs.padding)
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    (dr, ds), (sh, sw) = ints(call.attrs.dilation), ints(call.attrs.strides)
    reach = [(n - 1) * d + 1 for n, d in zip(size, (dr, ds), strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return view[:, :, ::sh, ::sw, ::dr, ::ds]


def _conv2d(call: relax.Call, x: Array, w: Array) -> Array:
    groups = int(call.attrs.groups)
    windows = _windows(call, x, w.shape[2:], 0.0)
    n, c, p, q, r, s = windows.shape
    columns = windows.reshape(n, groups, c // groups, p, q, r, s).transpose(1, 2, 5, 6, 0, 3, 4)
    k = w.shape[0]
    y = w.reshape(groups, k // groups, -1) @ columns.reshape(groups, -1, n * p * q)
    return y.reshape(k, n, p, q).transpose(1, 0, 2, 3)


def _conv2d_transpose(call: relax.Call, x: Array, w: Array) -> Array:
    """Without padding, dilation and groups."""
    plain = [*ints(call.attrs.padding), *ints(call.attrs.output_padding)]
    assert not any(plain) and int(call.attrs.groups) == 1 and set(ints(call.attrs.dilation)) == {1}
    sh, sw = ints(call.attrs.strides)
    y = np.zeros(shape_of(call), x.dtype)
    (h, width), (r, s) = x.shape[2:], w.shape[2:]
    for i in range(r):
        for j in range(s):
            added = np.einsum("nchw,ck->nkhw", x, w[:, :, i, j])
            y[:, :, i : i + sh * h : sh, j : j + sw * width : sw] += added
    return y


def _max_pool2d(call: relax.Call, x: Array) -> Array:
    assert not call.attrs.ceil_mode
    return _windows(call, x, ints(call.attrs.pool_size), -np.inf).max((4, 5))


def _avg_pool2d(call: relax.Call, x: Array) -> Array:
    assert not call.attrs.ceil_mode
    size = ints(call.attrs.pool_size)
    sums = _windows(call, x, size, 0.0).sum((4, 5))
    if call.attrs.count_include_pad:
        return sums / np.prod(size)
    return sums / _windows(call, np.ones_like(x), size, 0.0).sum((4, 5))


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon)


def _layer_norm(call: relax.Call, x: Array, gamma: Array, beta: Array) -> Array:
    return _normalized(x, tuple(ints(call.attrs.axes)), call.attrs.epsilon) * gamma + beta


def _group_norm(call: relax.Call, x: Array, gamma: Array, beta: Array) -> Array:
    """Of (N, C, ...) over the channels of a group and all that follows."""
    assert int(call.attrs.channel_axis) == 1 and len(ints(call.attrs.axes)) == x.ndim - 2
    groups = x.reshape(x.shape[0], int(call.attrs.num_groups), -1)
    y = _normalized(groups, (2,), call.attrs.epsilon).reshape(x.shape)
    each = (-1, *[1] * (x.ndim - 2))
    return y * gamma.reshape(each) + beta.reshape(each)


def _resize2d(call: relax.Call, x: Array) -> Array:
    """Nearest of the pixel at or before a place, or linear between the centres of pixels."""
    how = call.attrs.method, call.attrs.coordinate_transformation_mode, call.attrs.layout
    linear = how == ("linear", "half_pixel", "NCHW")
    assert linear or how == ("nearest_neighbor", "asymmetric", "NCHW"), how
    for axis, size in zip((2, 3), shape_of(call)[2:], strict=True):
        last, scale = x.shape[axis] - 1, x.shape[axis] / size
        place = (np.arange(size) + 0.5) * scale - 0.5 if linear else np.arange(size) * scale
        before = np.floor(place).astype(int)
        share = (place - before if linear else np.zeros(size)).astype(x.dtype)
        share = share.reshape(-1, *[1] * (x.ndim - 1 - axis))
        low, high = (np.take(x, np.clip(at, 0, last), axis) for at in (before, before + 1))
        x = low * (1 - share) + high * share
    return x


#: From the call and its tensors to the result, by name.
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "add": lambda call, a, b: a + b,
    "subtract": lambda call, a, b: a - b,
    "multiply": lambda call, a, b: a * b,
    "divide": lambda call, a, b: a / b,
    "maximum": lambda call, a, b: np.maximum(a, b),
    "minimum": lambda call, a, b: np.minimum(a, b),
    "negative": _activation(np.negative),
    "square": _activation(np.square),
    "sqrt": _activation(np.sqrt),
    "rsqrt": _activation(lambda x: 1 / np.sqrt(x)),
    "tanh": _activation(np.tanh),
    "sigmoid": _activation(_sigmoid),
    "clip": lambda call, x: np.clip(x, *(float(bound.value) for bound in call.args[1:])),
    "nn.relu": _activation(lambda x: np.maximum(x, 0)),
    "nn.silu": _activation(lambda x: x * _sigmoid(x)),
    "nn.gelu": _activation(lambda x: x * 0.5 * (1 + erf(x / 2**0.5))),
    "nn.leakyrelu": lambda call, x: np.where(x > 0, x, x * call.attrs.alpha),
    "astype": lambda call, x: x,
    "matmul": lambda call, a, b: a @ b,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "nn.max_pool2d": _max_pool2d,
    "nn.avg_pool2d": _avg_pool2d,
    "nn.softmax": lambda call, x: _softmax(x, int(call.attrs.axis)),
    "nn.layer_norm": _layer_norm,
    "nn.group_norm": _group_norm,
    "image.resize2d": _resize2d,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten"), _reshaped),
    "permute_dims": lambda call, x: x.transpose(permutation_of(call)),
    "broadcast_to": lambda call, x: np.broadcast_to(x, shape_of(call)),
    "concat": lambda call, xs: np.concatenate(xs, int(call.attrs.axis)),
    "split": lambda call, x: np.split(x, len(call.ty.fields), int(call.attrs.axis)),
    "flip": lambda call, x: np.flip(x, int(call.attrs.axis)),
    **{name: _over_axes(getattr(np, name)) for name in ("mean", "sum", "max", "min", "prod")},
    "nn.pad": lambda call, x: np.pad(x, np.reshape(ints(call.attrs.pad_width), (-1, 2))),
    "strided_slice": _slice,
    "take": lambda call, x, i: np.take(x, i, int(call.attrs.axis)),
}

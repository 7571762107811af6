"""Dense layers, convolutions, pools, normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, infer_shape, rank, reshape
from convoy.relay.frontend.keras.activation import activate
from convoy.relay.frontend.keras.registry import Layer, Tensor, convert
from convoy.relay.frontend.linear_algebra import gemm
from convoy.relay.frontend.windows import (
    avg_pool,
    conv,
    conv_transpose,
    global_pool,
    max_pool,
    pad,
    same_padding,
)
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def spread(value: int | Sequence[int], count: int) -> list[int]:
    """Return one number for each axis."""
    return [value] * count if isinstance(value, int) else list(value)


def padding(layer: Layer, data: Expr, kernel: Sequence[int], strides: Sequence[int],
            dilation: Sequence[int]) -> list[int]:  # fmt: skip
    """Return the padding of a window: all before, then all after.

    Raises:
        UnsupportedOp: Another mode than valid, same and causal.
    """
    mode = layer.config.get("padding", "valid")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if mode == "same":
        return same_padding(infer_shape(data)[2:], extents, strides, True)
    if mode == "causal":
        return [extents[0] - 1, 0]
    if mode != "valid":
        raise layer.error(f"padding='{mode}'", "'valid', 'same' or 'causal'")
    return [0] * 2 * len(kernel)


@convert("Dense")
def dense(layer: Layer) -> Tensor:
    kernel, *bias = layer.weights
    weight = layer.param("weight", kernel.T)
    result = gemm(layer.x.last(), weight, layer.param("bias", bias[0]) if bias else None)
    return Tensor(activate(layer, layer.config["activation"], result))


def _finish(layer: Layer, result: Expr, bias: list[np.ndarray]) -> Tensor:
    if bias:
        result = nn.bias_add(result, layer.param("bias", bias[0]))
    return Tensor(activate(layer, layer.config["activation"], result, 1), True)


@convert("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
def convolution(layer: Layer) -> Tensor:
    """Convolve; kernels are (..., c, o), of depthwise ones (..., c, multiplier)."""
    layer.is_last()
    kernel, *bias = layer.weights
    axes = kernel.ndim - 2
    data = layer.x.channels_first()
    strides = spread(layer.config["strides"], axes)
    dilation = spread(layer.config.get("dilation_rate", 1), axes)
    depthwise = layer.name.startswith("Depthwise")
    weight, groups = _kernel(kernel, depthwise), layer.config.get("groups", 1)
    pads = padding(layer, data, kernel.shape[:axes], strides, dilation)
    groups = kernel.shape[-2] if depthwise else groups
    variable = layer.param("weight", weight)
    result = conv(data, variable, None, strides, pads, dilation, groups)
    return _finish(layer, result, bias)


def _kernel(kernel: np.ndarray, depthwise: bool) -> np.ndarray:
    """Return a kernel as (o, c / groups, ...)."""
    axes = kernel.ndim - 2
    if not depthwise:
        return kernel.transpose(axes + 1, axes, *range(axes))
    moved = kernel.transpose(axes, axes + 1, *range(axes))
    return moved.reshape(-1, 1, *kernel.shape[:axes])


@convert("SeparableConv1D", "SeparableConv2D")
def separable(layer: Layer) -> Tensor:
    """Convolve each channel, and then across channels."""
    layer.is_last()
    depth, point, *bias = layer.weights
    axes = depth.ndim - 2
    data = layer.x.channels_first()
    strides = spread(layer.config["strides"], axes)
    dilation = spread(layer.config["dilation_rate"], axes)
    pads = padding(layer, data, depth.shape[:axes], strides, dilation)
    first = layer.param("depthwise_weight", _kernel(depth, True))
    middle = conv(data, first, None, strides, pads, dilation, depth.shape[-2])
    second = layer.param("pointwise_weight", _kernel(point, False))
    one, zero = [1] * axes, [0] * 2 * axes
    return _finish(layer, conv(middle, second, None, one, zero, one, 1), bias)


@convert("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed(layer: Layer) -> Tensor:
    """Apply a transposed convolution; kernels are (..., o, c)."""
    layer.is_last()
    kernel, *bias = layer.weights
    axes = kernel.ndim - 2
    strides = spread(layer.config["strides"], axes)
    dilation = spread(layer.config.get("dilation_rate", 1), axes)
    more = layer.config.get("output_padding")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:axes], dilation, strict=True)]
    given = None if more is None else spread(more, axes)
    if layer.config["padding"] == "same":  # what is cut off at both ends, more at the second one
        sizes = (
            strides if given is None else [e % 2 + m for e, m in zip(extents, given, strict=True)]
        )
        totals = [e - s for e, s in zip(extents, sizes, strict=True)]
        before = [max(0, t // 2) for t in totals]
        rest = [t - b for t, b in zip(totals, before, strict=True)]
    else:
        before = [0] * axes
        least = [max(0, s - e) for s, e in zip(strides, extents, strict=True)]
        rest = [-m for m in (least if given is None else given)]
    after, out_pad = [max(0, r) for r in rest], [max(0, -r) for r in rest]
    weight = layer.param("weight", kernel.transpose(axes + 1, axes, *range(axes)))
    result = conv_transpose(
        layer.x.channels_first(), weight, None, strides, before + after, dilation, 1, out_pad
    )
    return _finish(layer, result, bias)


@convert("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "AveragePooling1D", "AveragePooling2D",
         "AveragePooling3D")  # fmt: skip
def pooling(layer: Layer) -> Tensor:
    layer.is_last()
    data = layer.x.channels_first()
    axes = rank(data) - 2
    kernel = spread(layer.config["pool_size"], axes)
    strides = spread(layer.config["strides"] or kernel, axes)
    ones = [1] * axes
    pads = padding(layer, data, kernel, strides, ones)
    if layer.name.startswith("Max"):
        return Tensor(max_pool(data, kernel, strides, pads, ones, False), True)
    return Tensor(avg_pool(data, kernel, strides, pads, ones, False, False), True)


@convert("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D",
         "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D")  # fmt: skip
def global_pooling(layer: Layer) -> Tensor:
    layer.is_last()
    data = layer.x.channels_first()
    result = global_pool(data, "max" if "Max" in layer.name else "avg")
    if layer.config.get("keepdims"):
        return Tensor(result, True)
    return Tensor(reshape(result, infer_shape(result)[:2]))


@convert("BatchNormalization")
def batch_norm(layer: Layer) -> Tensor:
    """Normalize by the moving statistics."""
    axis = layer.config["axis"]
    axis = axis[0] if isinstance(axis, list | tuple) else axis
    ndim = rank(layer.x.expr)
    axis %= ndim
    weights = list(layer.weights)
    count = weights[-1].shape[0]
    gamma = weights.pop(0) if layer.config["scale"] else np.ones(count, "float32")
    beta = weights.pop(0) if layer.config["center"] else np.zeros(count, "float32")
    names = zip(
        ("gamma", "beta", "moving_mean", "moving_var"), (gamma, beta, *weights), strict=True
    )
    params = [layer.param(name, value) for name, value in names]
    epsilon = layer.config["epsilon"]
    place = axis
    if layer.x.first:
        place = 1 if axis == ndim - 1 else axis if axis == 0 else axis + 1
    return layer.x.like(nn.batch_norm(layer.x.expr, *params, axis=place, epsilon=epsilon)[0])


@convert("LayerNormalization")
def layer_norm(layer: Layer) -> Tensor:
    """Normalize the last axis.

    Raises:
        UnsupportedOp: Other axes.
    """
    data = layer.x.last()
    axis = layer.config["axis"]
    axis = axis if isinstance(axis, list | tuple) else [axis]
    if [a % rank(data) for a in axis] != [rank(data) - 1]:
        raise layer.error(f"axis={axis}", "the last axis")
    count = infer_shape(data)[-1]
    weights = list(layer.weights)
    gamma = weights.pop(0) if layer.config["scale"] else np.ones(count, "float32")
    beta = weights.pop(0) if layer.config["center"] else np.zeros(count, "float32")
    scale, shift = layer.param("gamma", gamma), layer.param("beta", beta)
    return Tensor(nn.layer_norm(data, scale, shift, epsilon=layer.config["epsilon"]))


@convert("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D",
         "Cropping3D")  # fmt: skip
def zero_padding(layer: Layer) -> Tensor:
    """Pad, or crop, the spatial axes."""
    layer.is_last()
    crop = layer.name.startswith("Crop")
    data = layer.x.channels_first()
    axes = rank(data) - 2
    given = layer.config["cropping" if crop else "padding"]
    widths = [given] * axes if isinstance(given, int) else list(given)
    if axes == 1 and isinstance(widths[0], int) and len(widths) == 2:
        widths = [widths]
    pairs = [[w, w] if isinstance(w, int) else list(w) for w in widths]
    sign = -1 if crop else 1
    before, after = ([0, 0, *(sign * p[i] for p in pairs)] for i in (0, 1))
    return Tensor(pad(data, before, after), True)


@convert("Rescaling", "Normalization")
def rescaling(layer: Layer) -> Tensor:
    """Scale and shift."""
    data = layer.x.last()
    if layer.name == "Rescaling":
        factor = const(np.asarray(layer.config["scale"], "float32"))
        shift = const(np.asarray(layer.config["offset"], "float32"))
        return Tensor(R.add(R.multiply(data, factor), shift))
    mean = const(np.asarray(layer.layer.mean, "float32"))
    deviation = const(np.sqrt(np.asarray(layer.layer.variance, "float32")))
    return Tensor(R.divide(R.subtract(data, mean), deviation))

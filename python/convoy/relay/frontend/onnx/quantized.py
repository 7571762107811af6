"""Quantized operators: real = scale * (q - zero_point)."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    cast,
    const,
    dims,
    dtype_of,
    rank,
    reshape,
    scalar,
    scalar_like,
    value_of,
)
from convoy.relay.frontend.elementwise import round_even
from convoy.relay.frontend.linear_algebra import matmul
from convoy.relay.frontend.onnx.convolution import shifted, window
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.windows import conv
from convoy.relay.op import tensor as R
from convoy.relay.qnn import op as qnn


def _along(value: Expr, axis: int, ndim: int) -> Expr:
    """Shape a scale or zero point to broadcast along an axis."""
    shape = dims(value)
    if not shape or shape == (1,):
        return reshape(value, ())
    if len(shape) > 1:
        return value
    return reshape(value, [shape[0] if a == axis else 1 for a in range(ndim)])


def _axis(node: Node, scale: Expr) -> int:
    """Return the axis that a vector of scales runs along; a single one has none."""
    single = dims(scale) in ((), (1,))
    return 0 if single else node.axis(node.attr("axis", 1))


def _spread(node: Node, value: Expr) -> Expr:
    """Repeat a blocked scale or zero point to the shape of the data."""
    block = node.attr("block_size", 0)
    if not block:
        return _along(value, _axis(node, value), node.rank())
    axis = node.axis(node.attr("axis", 1))
    whole = R.repeat(value, block, axis=axis)
    return R.strided_slice(whole, begin=[0], end=[node.shape()[axis]], axes=[axis])


@convert("QuantizeLinear")
def quantize_linear(node: Node) -> Expr:
    """Compute saturate(round(x / scale) + zero_point), halves rounded to even."""
    zero = node.get(2)
    dtype = "uint8"
    if zero is not None:
        dtype = dtype_of(zero)
    elif node.attr("output_dtype", 0):
        from onnx import helper

        dtype = helper.tensor_dtype_to_np_dtype(node.attrs["output_dtype"]).name
    return _quantized(node, node[0], _spread(node, node[1]), zero, dtype)


def _quantized(node: Node, data: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    if dtype not in ("int8", "uint8", "int16", "uint16", "int32"):
        raise node.error(f"values of {dtype}", "8 or 16 bits")
    wide = cast(data, "float32")
    real = round_even(R.divide(wide, cast(scale, "float32")))
    if zero is not None:
        point = _spread(node, zero) if node.name == "QuantizeLinear" else reshape(zero, ())
        real = R.add(real, cast(point, "float32"))
    info = np.iinfo(dtype)
    return R.cast(R.clip(real, float(info.min), float(info.max)), dtype)


@convert("DequantizeLinear")
def dequantize_linear(node: Node) -> Expr:
    """Compute scale * (x - zero_point)."""
    dtype = node.dtype(1)
    if not node.attr("block_size", 0) and value_of(node[1]) is not None:
        zero = node.get(2)
        if zero is None or value_of(zero) is not None:
            point = const(np.zeros((), "int32")) if zero is None else cast(zero, "int32")
            axis = _axis(node, node[1])
            if node.dtype() in ("int8", "uint8", "int32", "int16", "uint16"):
                scale = cast(node[1], "float32")
                single = dims(scale) in ((), (1,))
                if single:
                    scale, point = reshape(scale, ()), reshape(point, ())
                return cast(qnn.dequantize(node[0], scale, point, axis=axis), dtype)
    data = cast(node[0], "int32")
    if node.get(2) is not None:
        data = R.subtract(data, cast(_spread(node, node[2]), "int32"))
    return R.multiply(cast(data, dtype), _spread(node, node[1]))


@convert("QLinearConv")
def qlinear_conv(node: Node) -> Expr:
    """Convolve in integers, and requantize."""
    strides, padding, dilation = window(node, node.shape(3)[2:])
    data = shifted(node[0], node[2], 1)
    weight = shifted(node[3], node[5], 0)
    groups = node.attr("group", 1)
    total = conv(data, weight, node.get(8), strides, padding, dilation, groups, "int32")
    scale = _along(node[4], 1, node.rank())
    return _requantized(node, total, [node[1], scale], node[6], node[7])


def _requantized(
    node: Node, total: Expr, scales: list[Expr], out_scale: Expr, out_zero: Expr
) -> Expr:
    """Scale a sum in int32 and quantize it, in float32."""
    factor: Any = cast(reshape(scales[0], ()), "float32")
    for scale in scales[1:]:
        factor = R.multiply(factor, cast(scale, "float32"))
    factor = R.divide(factor, cast(reshape(out_scale, ()), "float32"))
    one = scalar(1, "float32")
    real = R.multiply(cast(total, "float32"), factor)
    return _quantized(node, real, one, out_zero, dtype_of(out_zero))


@convert("QLinearMatMul")
def qlinear_matmul(node: Node) -> Expr:
    """Multiply matrices in integers, and requantize."""
    a = shifted_rows(node[0], node[2])
    b = R.subtract(cast(node[3], "int32"), _flat(node[5]))
    scales = [_flat(node[1], rows=True), _flat(node[4])]
    total = matmul(a, b, "int32")
    real = cast(total, "float32")
    for scale in scales:
        real = R.multiply(real, cast(scale, "float32"))
    return _quantized(node, real, reshape(node[6], ()), node[7], dtype_of(node[7]))


def shifted_rows(data: Expr, zero: Expr) -> Expr:
    """Subtract a zero point, one for all or one for each row."""
    return R.subtract(cast(data, "int32"), cast(_flat(zero, rows=True), "int32"))


def _flat(value: Expr, rows: bool = False) -> Expr:
    """Shape a parameter of rows or columns of a matrix to broadcast."""
    if dtype_of(value) in ("int8", "uint8"):
        value = cast(value, "int32")
    shape = dims(value)
    if shape in ((), (1,)):
        return reshape(value, ())
    return reshape(value, (*shape, 1)) if rows and len(shape) == 1 else value


def _real(node: Node, data: int) -> Expr:
    """Dequantize an input that is followed by its scale and zero point."""
    value = R.subtract(cast(node[data], "int32"), cast(reshape(node[data + 2], ()), "int32"))
    return R.multiply(cast(value, "float32"), reshape(node[data + 1], ()))


@convert("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_binary(node: Node) -> Expr:
    """Add or multiply quantized values."""
    function = R.add if node.name == "QLinearAdd" else R.multiply
    real = function(_real(node, 0), _real(node, 3))
    return _quantized(node, real, reshape(node[6], ()), node[7], dtype_of(node[7]))


@convert("QLinearSigmoid", "QLinearLeakyRelu", domain="com.microsoft")
def qlinear_unary(node: Node) -> Expr:
    """Apply an activation to quantized values."""
    from convoy.relay.op import nn

    real = _real(node, 0)
    if node.name == "QLinearSigmoid":
        real = R.sigmoid(real)
    else:
        real = nn.leaky_relu(real, node.attr("alpha", 0.01))
    return _quantized(node, real, reshape(node[3], ()), node[4], dtype_of(node[4]))


@convert("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average(node: Node) -> Expr:
    """Average quantized values over the spatial axes."""
    real = R.mean(_real(node, 0), axis=tuple(range(2, rank(node[0]))), keepdims=True)
    return _quantized(node, real, reshape(node[3], ()), node[4], dtype_of(node[4]))


@convert("QLinearConcat", domain="com.microsoft")
def qlinear_concat(node: Node) -> Expr:
    """Join quantized values of several scales."""
    reals = [_real(node, i) for i in range(2, len(node.inputs), 3)]
    joined = R.concatenate(reals, axis=node.axis(node.attrs["axis"], rank(reals[0])))
    return _quantized(node, joined, reshape(node[0], ()), node[1], dtype_of(node[1]))


@convert("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> list[Expr]:
    """Quantize to uint8 with the scale and zero point of the values themselves."""
    data = node[0]
    zero = scalar_like(0, data)
    high = R.maximum(R.max(data), zero)
    low = R.minimum(R.min(data), zero)
    scale = R.divide(R.subtract(high, low), scalar_like(255, data))
    point = R.clip(round_even(R.divide(R.negative(low), scale)), 0, 255)
    real = R.add(round_even(R.divide(data, scale)), point)
    return [R.cast(R.clip(real, 0, 255), "uint8"), scale, R.cast(point, "uint8")]

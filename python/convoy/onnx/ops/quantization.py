"""Quantized tensors: right results; the arithmetic is of 32 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import UnsupportedDtype
from ...ir.dtypes import widened
from ..call import DTYPES, Call, Value, converter
from .convolution import convolve
from .window import window


def _along(call: Call, index: int, axis: int) -> Value:
    """A scale or zero point, shaped to broadcast to the data: of all, of an axis, or of blocks."""
    value, sizes = call.value(index), call.shape()
    shape, rank = call.shape(index), call.rank()
    if math.prod(shape) == 1 and len(shape) <= 1:
        return call.reshape(value, ())
    if len(shape) == 1:
        return call.reshape(value, [-1 if i == axis else 1 for i in range(rank)])
    block = int(call.attrs.get("block_size", 0))
    if not block:
        return value
    repeated = np.repeat(np.arange(shape[axis]), block)[: sizes[axis]]
    return call.do("Gather", value, repeated, axis=axis)


def _axis(call: Call) -> int:
    axis, rank = int(call.attrs.get("axis", 1)), call.rank()
    return axis % rank if rank and -rank <= axis < rank else 0


@converter("QuantizeLinear")
def quantize_linear(call: Call) -> Value:
    """round(x / scale) + zero point, saturated."""
    from onnx import helper

    if call.has(2):
        target = call.dtype(2)
    elif call.attrs.get("output_dtype", 0):
        target = str(np.dtype(helper.tensor_dtype_to_np_dtype(int(call.attrs["output_dtype"]))))
    else:
        target = "uint8"
    if target not in DTYPES:
        raise UnsupportedDtype(f"{call.op} {call.name!r} to {target}", "8 or 16 bits")
    axis = _axis(call)
    x, scale = call.value(0), _along(call, 1, axis)
    dtype = call.dtype(1)
    if dtype == "float16" and call.dtype() == "float32":
        dtype = "float32"
    ratio = call.do("Div", call.cast(x, dtype), call.cast(scale, dtype))
    zero = _along(call, 2, axis) if call.has(2) else None
    return saturate(call, ratio, zero, target, dtype)


def saturate(call: Call, ratio: Value, zero: Value, target: str, dtype: str = "float32") -> Value:
    """Round halves to even, add the zero point, and clip to what a dtype holds."""
    limits = np.iinfo(target)
    value = call.do("Round", ratio)
    wide = widened(dtype)
    value = call.cast(value, wide)
    if zero is not None:
        value = call.do("Add", value, call.cast(zero, wide))
    value = call.do("Clip", value, np.array(limits.min, wide), np.array(limits.max, wide))
    return call.cast(value, target)


@converter("DequantizeLinear")
def dequantize_linear(call: Call) -> Value:
    """(x - zero point) * scale."""
    from onnx import helper

    target = call.dtype(1)
    if call.attrs.get("output_dtype", 0):
        target = str(np.dtype(helper.tensor_dtype_to_np_dtype(int(call.attrs["output_dtype"]))))
    axis = _axis(call)
    working = widened(target)
    exact = working if call.dtype().startswith("float") else "int32"
    value: Value = call.cast(call.value(0), exact)
    if call.has(2):
        value = call.do("Sub", value, call.cast(_along(call, 2, axis), exact))
    scale = call.cast(_along(call, 1, axis), working)
    return call.cast(call.do("Mul", call.cast(value, working), scale), target)


def without_zero(call: Call, index: int, zero: int, shape: list[int] | None = None) -> Value:
    """A quantized tensor as int32, its zero point (of ``shape`` if that has several) taken off."""
    value = call.cast(call.value(index), "int32")
    if not call.has(zero):
        return value
    point = call.cast(call.value(zero), "int32")
    if math.prod(call.shape(zero)) == 1:
        point = call.reshape(point, ())
    elif shape is not None:
        point = call.reshape(point, shape)
    return call.do("Sub", value, point)


def _conv_int32(call: Call, x: Value, weight: Value, shape: tuple[int, ...]) -> Value:
    w = window(call, shape[2:])
    return convolve(call, call.expr(x), call.expr(weight), w, int(call.attrs.get("group", 1)))


@converter("ConvInteger")
def conv_integer(call: Call) -> Value:
    shape = call.shape(1)
    each = [-1, *(1,) * (len(shape) - 1)]
    return _conv_int32(call, without_zero(call, 0, 2), without_zero(call, 1, 3, each), shape)


@converter("MatMulInteger")
def matmul_integer(call: Call) -> Value:
    rows = [-1, 1] if call.has(2) and call.rank(2) == 1 else None
    a, b = without_zero(call, 0, 2, rows), without_zero(call, 1, 3)
    return call.do("MatMul", a, b)


@converter("QLinearConv")
def qlinear_conv(call: Call) -> Value:
    """Inputs: x, its scale and zero point, the same of w and of y, and an int32 bias."""
    shape = call.shape(3)
    rank = len(shape)
    weight = without_zero(call, 3, 5, [-1, *(1,) * (rank - 1)])
    result = _conv_int32(call, without_zero(call, 0, 2), weight, shape)
    each = (1, -1, *(1,) * (rank - 2))
    if call.has(8):
        result = call.do("Add", result, call.reshape(call.value(8), each))
    return requantized(call, result, 1, 4, 6, 7, each)


@converter("QLinearMatMul")
def qlinear_matmul(call: Call) -> Value:
    rows = [-1, 1] if call.rank(2) == 1 and call.shape(2) != (1,) else None
    a, b = without_zero(call, 0, 2, rows), without_zero(call, 3, 5)
    return requantized(call, call.do("MatMul", a, b), 1, 4, 6, 7, None)


def requantized(call: Call, value: Value, a: int, b: int, y: int, zero: int, each: Any) -> Value:
    """Integers of scale a * b as integers of scale y."""
    scales = []
    for index in (a, b, y):
        scale = call.cast(call.value(index), "float32")
        single = math.prod(call.shape(index)) == 1
        if single:
            scale = call.reshape(scale, ())
        elif each is not None:
            scale = call.reshape(scale, each)
        elif index == a:
            scale = call.reshape(scale, (-1, 1))
        scales.append(scale)
    factor = call.do("Div", call.do("Mul", scales[0], scales[1]), scales[2])
    ratio = call.do("Mul", call.cast(value, "float32"), factor)
    point = call.reshape(call.value(zero), ())
    return saturate(call, ratio, point, call.dtype(zero))

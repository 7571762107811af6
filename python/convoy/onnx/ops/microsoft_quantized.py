"""Quantized operators of the domain com.microsoft."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call import Call, Converter, Value, converter
from .microsoft import DOMAIN, channels_first, channels_last
from .quantization import requantized, saturate, without_zero


def _dequantized(call: Call, index: int) -> Value:
    """Input ``index`` with its scale and zero point behind it, as float32."""
    value = call.cast(call.value(index), "int32")
    if call.has(index + 2):
        point = call.cast(call.value(index + 2), "int32")
        value = call.do("Sub", value, call.reshape(point, ()))
    scale = call.reshape(call.value(index + 1), ())
    return call.do("Mul", call.cast(value, "float32"), scale)


def _quantized(call: Call, value: Value, scale: int) -> Value:
    """float32 with the scale and zero point of inputs ``scale`` and behind."""
    zero = call.reshape(call.value(scale + 1), ()) if call.has(scale + 1) else None
    target = call.dtype(scale + 1) if call.has(scale + 1) else call.dtype(0)
    ratio = call.do("Div", value, call.reshape(call.value(scale), ()))
    return saturate(call, ratio, zero, target)


def _qlinear_binary(op: str) -> Converter:
    def convert(call: Call) -> Value:
        return _quantized(call, call.do(op, _dequantized(call, 0), _dequantized(call, 3)), 6)

    return convert


def _qlinear_unary(op: str, *names: str) -> Converter:
    def convert(call: Call) -> Value:
        attrs: dict[str, Any] = {n: call.attrs[n] for n in names if n in call.attrs}
        return _quantized(call, call.do(op, _dequantized(call, 0), **attrs), 3)

    return convert


for _op in ("Add", "Mul"):
    converter(f"QLinear{_op}", domain=DOMAIN)(_qlinear_binary(_op))
converter("QLinearSigmoid", domain=DOMAIN)(_qlinear_unary("Sigmoid"))
converter("QLinearLeakyRelu", domain=DOMAIN)(_qlinear_unary("LeakyRelu", "alpha"))


@converter("QLinearConv", "NhwcMaxPool", domain=DOMAIN)
def with_channels_last(call: Call) -> Value:
    """ONNX's operators on data, (n, ..., c); filters are those of ONNX."""
    attrs = dict(call.attrs)
    if not attrs.pop("channels_last", call.op == "NhwcMaxPool"):
        return call.do(call.op, *call.inputs, **attrs)
    x = channels_first(call, call.value(0), call.rank())
    y = call.do(call.op.removeprefix("Nhwc"), x, *call.inputs[1:], **attrs)
    return channels_last(call, y, call.rank())


@converter("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(call: Call) -> Value:
    attrs, rank = dict(call.attrs), call.rank()
    last, x = attrs.pop("channels_last", 0), _dequantized(call, 0)
    y = call.do("AveragePool", channels_first(call, x, rank) if last else x, **attrs)
    return _quantized(call, channels_last(call, y, rank) if last else y, 3)


@converter("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(call: Call) -> Value:
    last = bool(call.attrs.get("channels_last", 0))
    axes = np.arange(1, call.rank() - 1) if last else np.arange(2, call.rank())
    return _quantized(call, call.do("ReduceMean", _dequantized(call, 0), axes), 3)


@converter("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(call: Call) -> Value:
    axis = call.axis(-1)
    if int(call.attrs.get("opset", 13)) < 13 and axis != call.rank() - 1:
        raise call.unsupported("of opset 12 along another axis than the last")
    return _quantized(call, call.do("Softmax", _dequantized(call, 0), axis=axis), 3)


@converter("QLinearWhere", domain=DOMAIN)
def qlinear_where(call: Call) -> Value:
    """Inputs: the condition, two values with scale and zero point each, and those of the result."""
    chosen = call.do("Where", call.value(0), _dequantized(call, 1), _dequantized(call, 4))
    ratio = call.do("Div", chosen, call.reshape(call.value(7), ()))
    return saturate(call, ratio, call.reshape(call.value(8), ()), call.dtype(8))


@converter("QLinearConcat", domain=DOMAIN)
def qlinear_concat(call: Call) -> Value:
    """Inputs: the result's scale and zero point, then data, scale and zero point of each."""
    parts = [_dequantized(call, i) for i in range(2, len(call.inputs), 3)]
    joined = call.do("Concat", *parts, axis=int(call.attrs["axis"]))
    ratio = call.do("Div", joined, call.reshape(call.value(0), ()))
    return saturate(call, ratio, call.reshape(call.value(1), ()), call.dtype(1))


@converter("QuantizeLinear", "DequantizeLinear", domain=DOMAIN)
def quantize(call: Call) -> Value:
    attrs = {"axis": int(call.attrs["axis"])} if "axis" in call.attrs else {}
    return call.do(call.op, *call.inputs, **attrs)


@converter("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(call: Call) -> Value:
    """float32 data quantized on the fly, times a quantized matrix."""
    a, scale, zero = call.do("DynamicQuantizeLinear", call.value(0), outputs=3)
    points = [zero] + ([call.value(3)] if call.has(3) else [])
    product = call.do("MatMulInteger", a, call.value(1), *points)
    factor = call.do("Mul", scale, call.value(2))
    result = call.do("Mul", call.cast(product, "float32"), factor)
    return call.do("Add", result, call.value(4)) if call.has(4) else result


@converter("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(call: Call) -> Value:
    points = [call.inputs[i] if call.has(i) else None for i in (4, 5)]
    product = call.do("MatMulInteger", call.value(0), call.value(1), *points)
    scale = call.value(2)
    if math.prod(call.shape(2)) != 1:
        scale = call.reshape(scale, (-1, 1))
    result = call.do("Mul", call.cast(product, "float32"), call.do("Mul", scale, call.value(3)))
    return call.do("Add", result, call.value(6)) if call.has(6) else result


@converter("QGemm", domain=DOMAIN)
def qgemm(call: Call) -> Value:
    """Inputs: a, its scale and zero point, the same of b, an int32 bias, and those of y, without
    which the result is float32. The factor alpha is part of the scale, also of the bias."""
    attrs = {name: int(call.attrs.get(name, 0)) for name in ("transA", "transB")}
    a, b = without_zero(call, 0, 2), without_zero(call, 3, 5, [-1, 1] if attrs["transB"] else None)
    bias = [call.value(6)] if call.has(6) else []
    product = call.cast(call.do("Gemm", a, b, *bias, **attrs), "float32")
    alpha = float(call.attrs.get("alpha", 1.0))
    if alpha != 1:
        product = call.do("Mul", product, np.asarray(alpha, "float32"))
    if call.has(7):
        return requantized(call, product, 1, 4, 7, 8, (1, -1))
    return call.do("Mul", product, call.do("Mul", call.value(1), call.value(4)))


@converter("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(call: Call) -> Value:
    """An LSTM whose weights, (directions, inputs, gates), are quantized; the data stays float32."""

    def weight(index: int, scale: int) -> Value:
        shape = (call.shape(index)[0], 1, -1)
        numbers = call.cast(call.value(index), "float32")
        if call.has(scale + 1):
            point = call.cast(call.value(scale + 1), "float32")
            numbers = call.do("Sub", numbers, call.reshape(point, shape))
        numbers = call.do("Mul", numbers, call.reshape(call.value(scale), shape))
        return call.do("Transpose", numbers, perm=(0, 2, 1))

    inputs = [call.value(0), weight(1, 8), weight(2, 10), *call.inputs[3:8]]
    return call.do("LSTM", *inputs, outputs=call.outputs, **call.attrs)


@converter("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(call: Call) -> Value:
    """Data times the transpose of a matrix, (n, blocks, bytes), whose numbers of 2, 4 or 8 bits
    have a scale and a zero point for each block of a row."""
    if call.has(4):
        raise call.unsupported("with reordered groups", "groups in order")
    bits, size = int(call.attrs.get("bits", 4)), int(call.attrs["block_size"])
    n, k = int(call.attrs["N"]), int(call.attrs["K"])
    blocks = math.ceil(k / size)
    scales = call.constant(2, "scale").reshape(n, blocks, 1)
    points: np.ndarray = np.array(1 << (bits - 1))
    if call.has(3):
        points = call.constant(3, "zero point")
        if points.dtype == np.uint8:
            points = _unpacked(points.reshape(n, -1), bits)[:, :blocks]
        points = points.reshape(n, blocks, 1)
    matrix = _unpacked(call.constant(1, "matrix").reshape(n, blocks, -1), bits)[..., :size]
    weight = (matrix.astype(scales.dtype) - points.astype(scales.dtype)) * scales
    weight = np.ascontiguousarray(weight.reshape(n, -1)[:, :k].T)
    result = call.do("MatMul", call.value(0), weight)
    return call.do("Add", result, call.value(5)) if call.has(5) else result


def _unpacked(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of a few bits along the last axis of bytes, the lowest bits first."""
    parts = [numbers >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*numbers.shape[:-1], -1)

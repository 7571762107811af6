"""Operators of the domain com.microsoft that onnxruntime's tools put into models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call import Call, Converter, Value, converter
from .quantization import saturate

_DOMAIN = "com.microsoft"


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
    converter(f"QLinear{_op}", domain=_DOMAIN)(_qlinear_binary(_op))
converter("QLinearSigmoid", domain=_DOMAIN)(_qlinear_unary("Sigmoid"))
converter("QLinearLeakyRelu", domain=_DOMAIN)(_qlinear_unary("LeakyRelu", "alpha"))
converter("QLinearAveragePool", domain=_DOMAIN)(
    _qlinear_unary(
        "AveragePool", "kernel_shape", "strides", "pads", "auto_pad", "ceil_mode",
        "count_include_pad",
    )
)  # fmt: skip


@converter("QLinearGlobalAveragePool", domain=_DOMAIN)
def qlinear_global_average_pool(call: Call) -> Value:
    last = bool(call.attrs.get("channels_last", 0))
    axes = np.arange(1, call.rank() - 1) if last else np.arange(2, call.rank())
    return _quantized(call, call.do("ReduceMean", _dequantized(call, 0), axes), 3)


@converter("QLinearSoftmax", domain=_DOMAIN)
def qlinear_softmax(call: Call) -> Value:
    axis = call.axis(-1)
    if int(call.attrs.get("opset", 13)) < 13 and axis != call.rank() - 1:
        raise call.unsupported("of opset 12 along another axis than the last")
    return _quantized(call, call.do("Softmax", _dequantized(call, 0), axis=axis), 3)


@converter("QLinearConcat", domain=_DOMAIN)
def qlinear_concat(call: Call) -> Value:
    """Inputs: the result's scale and zero point, then data, scale and zero point of each."""
    parts = [_dequantized(call, i) for i in range(2, len(call.inputs), 3)]
    joined = call.do("Concat", *parts, axis=int(call.attrs["axis"]))
    ratio = call.do("Div", joined, call.reshape(call.value(0), ()))
    return saturate(call, ratio, call.reshape(call.value(1), ()), call.dtype(1))


@converter("FusedConv", domain=_DOMAIN)
def fused_conv(call: Call) -> Value:
    attrs = {k: v for k, v in call.attrs.items() if not k.startswith("activation")}
    result = call.do("Conv", *call.inputs[:3], **attrs)
    if call.has(3):
        result = call.do("Add", result, call.value(3))
    return _activated(call, result)


def _activated(call: Call, value: Value) -> Value:
    name = call.attrs.get("activation", "")
    numbers = list(call.attrs.get("activation_params", ()))
    if not name:
        return value
    if name == "Clip":
        low, high = (call.const(n) for n in numbers)
        return call.do("Clip", value, low, high)
    attrs = dict(zip(("alpha", "beta"), numbers, strict=False))
    return call.do(name, value, **attrs)


@converter("FusedMatMul", domain=_DOMAIN)
def fused_matmul(call: Call) -> Value:
    if call.attrs.get("transBatchA", 0) or call.attrs.get("transBatchB", 0):
        raise call.unsupported("with transposed batches")
    values = []
    for index, name in enumerate(("transA", "transB")):
        value, rank = call.value(index), call.rank(index)
        if call.attrs.get(name, 0) and rank > 1:
            value = call.do("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))
        values.append(value)
    result, alpha = call.do("MatMul", *values), float(call.attrs.get("alpha", 1.0))
    return result if alpha == 1.0 else call.do("Mul", result, call.const(alpha))


@converter("Gelu", domain=_DOMAIN)
def gelu(call: Call) -> Value:
    return call.do("Gelu", call.value(0))


@converter("FastGelu", domain=_DOMAIN)
def fast_gelu(call: Call) -> Value:
    value = call.do("Add", call.value(0), call.value(1)) if call.has(1) else call.value(0)
    return call.do("Gelu", value, approximate="tanh")


@converter("BiasGelu", domain=_DOMAIN)
def bias_gelu(call: Call) -> Value:
    return call.do("Gelu", call.do("Add", call.value(0), call.value(1)))


@converter("QuickGelu", domain=_DOMAIN)
def quick_gelu(call: Call) -> Value:
    scaled = call.do("Mul", call.value(0), call.const(call.attrs.get("alpha", 1.702)))
    return call.do("Mul", call.value(0), call.do("Sigmoid", scaled))


@converter("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_norm(call: Call) -> Value:
    """Results: the normalised sum, and as the fourth the sum itself."""
    total = call.do("Add", call.value(0), call.value(1))
    if call.has(4):
        total = call.do("Add", total, call.value(4))
    inputs = [total, call.value(2)] + ([call.value(3)] if call.has(3) else [])
    y = call.do("LayerNormalization", *inputs, epsilon=float(call.attrs.get("epsilon", 1e-12)))
    return (y, None, None, total) if call.outputs > 3 else y


@converter("QuantizeLinear", "DequantizeLinear", domain=_DOMAIN)
def quantize(call: Call) -> Value:
    attrs = {"axis": int(call.attrs["axis"])} if "axis" in call.attrs else {}
    return call.do(call.op, *call.inputs, **attrs)


@converter("DynamicQuantizeMatMul", domain=_DOMAIN)
def dynamic_quantize_matmul(call: Call) -> Value:
    """float32 data quantized on the fly, times a quantized matrix."""
    a, scale, zero = call.do("DynamicQuantizeLinear", call.value(0), outputs=3)
    points = [zero] + ([call.value(3)] if call.has(3) else [])
    product = call.do("MatMulInteger", a, call.value(1), *points)
    factor = call.do("Mul", scale, call.value(2))
    result = call.do("Mul", call.cast(product, "float32"), factor)
    return call.do("Add", result, call.value(4)) if call.has(4) else result


@converter("MatMulIntegerToFloat", domain=_DOMAIN)
def matmul_integer_to_float(call: Call) -> Value:
    points = [call.inputs[i] if call.has(i) else None for i in (4, 5)]
    product = call.do("MatMulInteger", call.value(0), call.value(1), *points)
    scale = call.value(2)
    if math.prod(call.shape(2)) != 1:
        scale = call.reshape(scale, (-1, 1))
    result = call.do("Mul", call.cast(product, "float32"), call.do("Mul", scale, call.value(3)))
    return call.do("Add", result, call.value(6)) if call.has(6) else result

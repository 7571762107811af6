"""Operators of the domain com.microsoft that onnxruntime's tools put into models."""

from __future__ import annotations

from ..call import Call, Value, converter

DOMAIN = "com.microsoft"

#: Numbers of the activation of a FusedGemm.
_NUMBERS = ("activation_alpha", "activation_beta")


def channels_first(call: Call, value: Value, rank: int) -> Value:
    """(n, ..., c) -> (n, c, ...)"""
    return call.do("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(call: Call, value: Value, rank: int) -> Value:
    """(n, c, ...) -> (n, ..., c)"""
    return call.do("Transpose", value, perm=(0, *range(2, rank), 1))


@converter("FusedConv", domain=DOMAIN)
def fused_conv(call: Call) -> Value:
    attrs = {k: v for k, v in call.attrs.items() if not k.startswith("activation")}
    result = call.do("Conv", *call.inputs[:3], **attrs)
    if call.has(3):
        result = call.do("Add", result, call.value(3))
    return _activated(call, result)


@converter("FusedGemm", domain=DOMAIN)
def fused_gemm(call: Call) -> Value:
    attrs = {k: v for k, v in call.attrs.items() if not k.startswith("activation")}
    return _activated(call, call.do("Gemm", *call.inputs, **attrs))


def _activated(call: Call, value: Value) -> Value:
    name = call.attrs.get("activation", "")
    numbers = list(call.attrs.get("activation_params", ()))
    numbers += [call.attrs[n] for n in _NUMBERS if n in call.attrs]
    if not name:
        return value
    if name == "Clip":
        low, high = (call.const(n) for n in numbers)
        return call.do("Clip", value, low, high)
    attrs = dict(zip(("alpha", "beta"), numbers, strict=False))
    return call.do(name, value, **attrs)


@converter("FusedMatMul", domain=DOMAIN)
def fused_matmul(call: Call) -> Value:
    """The first axis of an operand of a transposed batch is behind the batch's, then the matrices
    are transposed."""
    values = []
    for index, name in enumerate("AB"):
        value, axes = call.value(index), list(range(call.rank(index)))
        if call.attrs.get(f"transBatch{name}", 0) and len(axes) > 2:
            axes = [*axes[1:-1], 0, axes[-1]]
        if call.attrs.get(f"trans{name}", 0) and len(axes) > 1:
            axes[-2:] = reversed(axes[-2:])
        values.append(call.do("Transpose", value, perm=axes))
    result, alpha = call.do("MatMul", *values), float(call.attrs.get("alpha", 1.0))
    return result if alpha == 1.0 else call.do("Mul", result, call.const(alpha))


@converter("Gelu", domain=DOMAIN)
def gelu(call: Call) -> Value:
    return call.do("Gelu", call.value(0))


@converter("FastGelu", domain=DOMAIN)
def fast_gelu(call: Call) -> Value:
    value = call.do("Add", call.value(0), call.value(1)) if call.has(1) else call.value(0)
    return call.do("Gelu", value, approximate="tanh")


@converter("BiasGelu", domain=DOMAIN)
def bias_gelu(call: Call) -> Value:
    return call.do("Gelu", call.do("Add", call.value(0), call.value(1)))


@converter("QuickGelu", domain=DOMAIN)
def quick_gelu(call: Call) -> Value:
    scaled = call.do("Mul", call.value(0), call.const(call.attrs.get("alpha", 1.702)))
    return call.do("Mul", call.value(0), call.do("Sigmoid", scaled))


@converter("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_norm(call: Call) -> Value:
    """Results: the normalised sum, and as the fourth the sum itself."""
    total = call.do("Add", call.value(0), call.value(1))
    if call.has(3):
        total = call.do("Add", total, call.value(3))
    epsilon = float(call.attrs.get("epsilon", 1e-6))
    y = call.do("RMSNormalization", total, call.value(2), epsilon=epsilon)
    return (y, None, None, total) if call.outputs > 3 else y


@converter("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(call: Call) -> Value:
    """Results: the normalised sum, and as the fourth the sum itself."""
    total = call.do("Add", call.value(0), call.value(1))
    if call.has(4):
        total = call.do("Add", total, call.value(4))
    inputs = [total, call.value(2)] + ([call.value(3)] if call.has(3) else [])
    y = call.do("LayerNormalization", *inputs, epsilon=float(call.attrs.get("epsilon", 1e-12)))
    return (y, None, None, total) if call.outputs > 3 else y

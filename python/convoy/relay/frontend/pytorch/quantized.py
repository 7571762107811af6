"""Quantized layers: integers with scales that are constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Constant, Expr
from convoy.relay.frontend.common import const, infer_shape, rank, value_of
from convoy.relay.frontend.pytorch.registry import Call, convert, converter_of
from convoy.relay.frontend.pytorch.values import Opaque, Quantized
from convoy.relay.op import nn
from convoy.relay.op import tensor as R
from convoy.relay.qnn import op as qnn


def quantized(real: Expr, scale: Any, zero_point: Any, dtype: str) -> Quantized:
    """Quantize real numbers with one scale."""
    s, z = _scale(scale), _zero(zero_point)
    info = np.iinfo(dtype)
    steps = R.divide(real, s)
    from convoy.relay.frontend.elementwise import round_even

    shifted = R.add(round_even(steps), const(z.value.astype("float32")))
    values = R.cast(R.clip(shifted, float(info.min), float(info.max)), dtype)
    return Quantized(values, s, z)


def _scale(value: Any) -> Constant:
    return const(np.asarray(_number(value), "float32"))


def _zero(value: Any) -> Constant:
    return const(np.asarray(_number(value), "int32"))


def _number(value: Any) -> Any:
    if isinstance(value, Expr):
        found = value_of(value)
        if found is None:
            raise UnsupportedOp(
                "a scale that is computed at run time", "a constant",
                "Quantize statically, with convert() after calibration",
            )  # fmt: skip
        return found.reshape(-1)[0]
    return value


@convert("quantize_per_tensor")
def quantize(call: Call) -> Quantized:
    dtype = call.dtype()
    assert dtype is not None
    return quantized(call["self"], call.args["scale"], call.args["zero_point"], dtype)


@convert("dequantize")
def dequantize(call: Call) -> Expr:
    return call["self"]


@convert("int_repr")
def int_repr(call: Call) -> Expr:
    return call.get("self").expr


@convert("q_scale", "q_zero_point")
def parameter(call: Call) -> Any:
    found = call.get("self")
    value = value_of(found.scale if call.short == "q_scale" else found.zero_point)
    assert value is not None
    return value.item()


def _packed(call: Call, unpack: str) -> tuple[Any, Any]:
    """Return weight and bias of packed parameters, as torch tensors."""
    import torch

    packed = call.get("packed_weight") or call.get("W_prepack")
    found = packed.object if isinstance(packed, Opaque) else packed
    return getattr(torch.ops.quantized, unpack)(found)


def _weight(weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return integers, scales and zero points, by output channel or one for all."""
    import torch

    values = weight.int_repr().numpy()
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        scales = weight.q_per_channel_scales().numpy().astype("float32")
        return values, scales, weight.q_per_channel_zero_points().numpy().astype("int32")
    return (
        values,
        np.asarray(weight.q_scale(), "float32"),
        np.asarray(weight.q_zero_point(), "int32"),
    )


def _finish(
    call: Call, total: Expr, data: Quantized, scales: np.ndarray, bias: Any, relu: bool
) -> Quantized:
    """Add the bias to a sum in int32, and requantize to the scale of the output."""
    in_scale = value_of(data.scale)
    assert in_scale is not None
    factors = in_scale * scales
    if bias is not None:
        rounded = np.round(bias.detach().numpy() / factors).astype("int32")
        total = nn.bias_add(total, const(rounded), axis=1)
    s, z = _scale(call.get("output_scale")), _zero(call.args["output_zero_point"])
    result = qnn.requantize(
        total, const(np.asarray(factors, "float32")), const(np.zeros((), "int32")), s, z, axis=1,
        rounding="TONEAREST", out_dtype="uint8",
    )  # fmt: skip
    if relu:
        result = R.maximum(result, const(np.asarray(z.value, "uint8")))
    return Quantized(result, s, z)


@convert("conv1d", "conv2d", "conv2d_relu", "conv1d_relu", namespace="quantized")
def conv2d(call: Call) -> Quantized:
    """Convolve integers and requantize."""
    import torch

    if "1d" in call.short:
        raise call.error("a quantized convolution over one axis", "two axes")
    packed = call.get("packed_weight")
    found = packed.object
    weight, bias = torch.ops.quantized.conv2d_unpack(found)
    strides, padding = list(found.stride()), list(found.padding())
    dilation, groups = list(found.dilation()), found.groups()
    values, scales, zeros = _weight(weight)
    data = call.get("qx")
    total = qnn.conv2d(
        data.expr, const(values), data.zero_point, const(zeros), data.scale, const(scales),
        kernel_size=values.shape[2:], channels=values.shape[0], strides=tuple(strides),
        padding=tuple(padding), dilation=tuple(dilation), groups=groups,
    )  # fmt: skip
    return _finish(call, total, data, scales, bias, call.short.endswith("relu"))


@convert("linear", "linear_relu", namespace="quantized")
def linear(call: Call) -> Quantized:
    """Apply a fully connected layer to integers and requantize."""
    weight, bias = _packed(call, "linear_unpack")
    values, scales, zeros = _weight(weight)
    data = call.get("X")
    expr, shape = data.expr, infer_shape(data.expr)
    if rank(expr) != 2:
        expr = R.reshape(expr, (-1, shape[-1]))
    total = qnn.dense(
        expr, const(values), data.zero_point, const(zeros), data.scale, const(scales),
        units=values.shape[0],
    )  # fmt: skip
    args = {
        "output_scale": call.args["Y_scale_i"],
        "output_zero_point": call.args["Y_zero_point_i"],
    }
    named = Call(call.name, args, call.default_dtype)
    result = _finish(named, total, data, scales, bias, call.short.endswith("relu"))
    if rank(data.expr) != 2:
        flat = R.reshape(result.expr, (*shape[:-1], values.shape[0]))
        return Quantized(flat, result.scale, result.zero_point)
    return result


@convert("add", "add_relu", "mul", "mul_relu", namespace="quantized")
def binary(call: Call) -> Quantized:
    """Add or multiply quantized tensors, in real numbers."""
    left, right = (call.get(n).dequantized() for n in ("qa", "qb"))
    real = (R.add if "add" in call.short else R.multiply)(left, right)
    if call.short.endswith("relu"):
        real = nn.relu(real)
    return quantized(real, call.get("scale"), call.args["zero_point"], "uint8")


@convert("cat", namespace="quantized")
def cat(call: Call) -> Quantized:
    parts = [p.dequantized() for p in call.get("qx")]
    joined = R.concatenate(parts, axis=call.get("dim"))
    return quantized(joined, call.get("scale"), call.args["zero_point"], "uint8")


@convert("add_scalar", "mul_scalar", namespace="quantized")
def scalar(call: Call) -> Quantized:
    raise call.error("a quantized tensor and a number", "two quantized tensors")


# Operators that keep scale and zero point: they work on the integers.
_KEEPING = (
    "max_pool2d", "relu", "view", "reshape", "flatten", "permute", "transpose", "contiguous",
    "select", "slice", "unsqueeze", "squeeze", "dropout", "clone", "detach", "chunk", "unbind",
)  # fmt: skip


def on_integers(call: Call) -> Any:
    """Convert an operator that keeps scale and zero point, None where it does not."""
    name = next((n for n, v in call.args.items() if isinstance(v, Quantized)), None)
    if name is None or call.short not in _KEEPING:
        return None
    data = call.args[name]
    if call.short == "relu":
        dtype = data.expr.checked_type.dtype if data.expr.checked_type_ else "uint8"
        zero = const(np.asarray(data.zero_point.value, dtype))
        return Quantized(R.maximum(data.expr, zero), data.scale, data.zero_point)
    converter = converter_of(call.name)
    assert converter is not None
    result = converter(Call(call.name, {**call.args, name: data.expr}, call.default_dtype))
    if isinstance(result, Sequence):
        return [Quantized(r, data.scale, data.zero_point) for r in result]
    return Quantized(result, data.scale, data.zero_point)


# Operators whose result has the scale of the input.
_REQUANTIZED = (
    "adaptive_avg_pool2d", "avg_pool2d", "mean", "upsample_nearest2d", "upsample_bilinear2d",
    "hardsigmoid", "hardtanh", "leaky_relu", "relu6", "hardswish", "sigmoid",
)  # fmt: skip


def in_real(call: Call) -> Any:
    """Convert an operator on the real numbers, and quantize its result again."""
    name = next((n for n, v in call.args.items() if isinstance(v, Quantized)), None)
    converter = converter_of(call.name)
    if name is None or call.short not in _REQUANTIZED or converter is None:
        return None
    data = call.args[name]
    if call.short in ("sigmoid", "hardsigmoid"):
        raise call.error("quantized", "real numbers", "Dequantize before it")
    real = converter(Call(call.name, {**call.args, name: data.dequantized()}, call.default_dtype))
    return quantized(real, data.scale, data.zero_point, "uint8")

"""Quantized layers: integers with scales that are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Constant, Expr
from convoy.relay.frontend.common import const, infer_shape, rank, value_of
from convoy.relay.frontend.elementwise import round_even
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.frontend.pytorch.values import Opaque, Quantized
from convoy.relay.op import nn
from convoy.relay.op import tensor as R
from convoy.relay.qnn import op as qnn


def quantized(real: Expr, scale: Any, zero_point: Any, dtype: str) -> Quantized:
    """Quantize real numbers with one scale."""
    s, z = _scale(scale), _zero(zero_point)
    info = np.iinfo(dtype)
    steps = R.divide(real, s)
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


@convert("conv1d", "conv1d_relu", namespace="quantized")
def conv1d(call: Call) -> Quantized:
    """Convolve over the second of two axes, of which the first has one element."""
    data = call.get("qx")
    flat = Quantized(R.expand_dims(data.expr, 2), data.scale, data.zero_point)
    name = call.name.replace("1d", "2d")
    wide = conv2d(Call(name, {**call.args, "qx": flat}, call.default_dtype))
    return Quantized(R.squeeze(wide.expr, (2,)), wide.scale, wide.zero_point)


@convert("conv2d", "conv2d_relu", namespace="quantized")
def conv2d(call: Call) -> Quantized:
    """Convolve integers and requantize."""
    import torch

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


@convert("linear_dynamic", "linear_relu_dynamic", namespace="quantized")
def linear_dynamic(call: Call) -> Expr:
    """Apply a fully connected layer to real numbers that are rounded to 8 bits by their range."""
    weight, bias = _packed(call, "linear_unpack")
    steps = 127.0 if call.args.get("reduce_range") else 255.0
    result = nn.dense(_rounded(call["X"], steps), const(weight.dequantize().numpy()), units=None)
    if bias is not None:
        result = R.add(result, const(bias.detach().numpy()))
    return nn.relu(result) if "relu" in call.short else result


def _rounded(x: Expr, steps: float) -> Expr:
    """Round to whole steps from the minimum to the maximum of a tensor, zero being one of them."""
    zero, last = const(np.float32(0)), const(np.float32(steps))
    low, high = R.minimum(R.min(x), zero), R.maximum(R.max(x), zero)
    step = R.divide(R.subtract(high, low), last)
    step = R.where(R.equal(step, zero), const(np.float32(0.1)), step)
    offset = round_even(R.divide(R.negative(low), step))
    places = R.add(round_even(R.divide(x, step)), offset)
    return R.multiply(R.subtract(R.clip(places, 0.0, steps), offset), step)

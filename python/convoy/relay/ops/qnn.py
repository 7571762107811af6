"""Quantized operators, expanded into integer arithmetic (`qnn_arithmetic`).

A quantized value q stands for scale * (q - zero_point). Scales and zero points are expressions
that must be constants, or bound parameters, when the module is compiled. They do not affect types.

GEMMs and convolutions run on int32 without the zero points, so padding is zero. `qnn_unary` has the
functions of one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import Size, as_tuple, both_sides, make_call, sizes
from convoy.relay.ops.convolution import infer_conv
from convoy.relay.ops.convolution_transpose import infer_conv_transpose
from convoy.relay.ops.dense import infer_batch_matmul, infer_dense, infer_dense_pack
from convoy.relay.ops.expansion_call import attrs_of, const, constant, name_of, plain, type_of
from convoy.relay.ops.join import infer_concatenate
from convoy.relay.ops.pooling import infer_pool
from convoy.relay.ops.qnn_arithmetic import (
    Scale,
    along,
    dequantized,
    per_tensor,
    quantized,
    requantized,
    saturated,
    without_zero_point,
)
from convoy.relay.ops.registry import TypeRule, builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast
from convoy.relay.types import TensorType, Type

_ROUNDINGS = ("None", "UPWARD", "TONEAREST")
_COMPUTE = ("None", "int64", "float32", "float64")


def _values(call: Call, args: Sequence[Expr], *positions: int) -> list[np.ndarray]:
    """Return scales and zero points, which must be constants."""
    return [constant(call, args[i], "a scale or zero point") for i in positions]


def _scale(call: Call, args: Sequence[Expr], index: int) -> np.ndarray | Scale:
    """Return a scale or zero point: its value, or the expression that computes it."""
    value = args[index]
    if isinstance(value, ast.Constant):
        return value.value
    return Scale(value, type_of(call, index))


def _axis(call: Call) -> int:
    return int(attrs_of(call).get("axis", -1))


def _result(call: Call) -> TensorType:
    found = call.checked_type
    assert isinstance(found, TensorType)
    return found


def _infer_plain(call: Inputs, count: int, rule: TypeRule) -> Type:
    """Apply the rule of the operator on real numbers to the first `count` arguments."""
    inner = Inputs(call.call, call.types[:count])
    result = rule(inner)
    call.assigned.update(inner.assigned)
    return result


# ---- quantize, dequantize, requantize


@builder("qnn.quantize")
def quantize(
    data: Expr, output_scale: Expr, output_zero_point: Expr, axis: int = -1, out_dtype: str = "int8"
) -> Call:
    """Compute round(data / scale) + zero point; scales may be vectors along `axis`."""
    args = (data, output_scale, output_zero_point)
    return make_call("qnn.quantize", *args, axis=axis, out_dtype=out_dtype)


@builder("qnn.dequantize")
def dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Call:
    """Compute scale * (data - zero point); scales may be vectors along `axis`."""
    args = (data, input_scale, input_zero_point)
    return make_call("qnn.dequantize", *args, axis=axis, out_dtype=out_dtype)


@type_rule("qnn.quantize", "qnn.dequantize")
def infer_quantize(call: Inputs) -> Type:
    call.count(3)
    return TensorType(call.tensor(0).shape, call.out_dtype("float32"))


@expansion("qnn.quantize")
def expand_quantize(call: Call, args: Sequence[Expr]) -> Expr:
    scale, zero = _scale(call, args, 1), _scale(call, args, 2)
    ndim = len(type_of(call, 0).shape)
    return quantized(args[0], scale, zero, _axis(call), ndim, attrs_of(call)["out_dtype"])


@expansion("qnn.dequantize")
def expand_dequantize(call: Call, args: Sequence[Expr]) -> Expr:
    scale, zero = _scale(call, args, 1), _scale(call, args, 2)
    ndim = len(type_of(call, 0).shape)
    return dequantized(args[0], scale, zero, _axis(call), ndim, attrs_of(call)["out_dtype"])


@builder("qnn.requantize")
def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Call:
    """Change scale and zero point.

    Args:
        axis: The axis of an input scale per channel.
        rounding: "UPWARD" or "TONEAREST" (halves away from zero). "None" for both is what
            `requantize_config` sets, "UPWARD" and "int64" outside of it.
        compute_dtype: "int64", which "None" means too, "float32" or "float64".
        out_dtype: The result's dtype.
    """
    return make_call(
        "qnn.requantize", data, input_scale, input_zero_point, output_scale, output_zero_point,
        axis=axis, rounding=rounding, compute_dtype=compute_dtype, out_dtype=out_dtype,
    )  # fmt: skip


@type_rule("qnn.requantize")
def infer_requantize(call: Inputs) -> Type:
    call.count(5)
    return TensorType(call.tensor(0).shape, call.out_dtype("int8"))


@expansion("qnn.requantize")
def expand_requantize(call: Call, args: Sequence[Expr]) -> Expr:
    quantization = _values(call, args, 1, 2, 3, 4)
    attrs, ndim, how = attrs_of(call), len(type_of(call, 0).shape), {}
    for field, known in (("rounding", _ROUNDINGS), ("compute_dtype", _COMPUTE)):
        if attrs[field] not in known:
            raise UnsupportedOp(f"qnn.requantize with {field}='{attrs[field]}'", ", ".join(known))
        if attrs[field] != "None":
            how[field] = attrs[field]
    result = requantized(args[0], quantization, _axis(call), ndim, **how)
    return saturated(result, _result(call).dtype)


# ---- convolutions and GEMMs


@builder("qnn.conv2d")
def conv2d(
    data: Expr,
    kernel: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    kernel_size: Size | None,
    channels: int | None,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> Call:
    """Convolve quantized values; the int32 result has the scale input_scale * kernel_scale."""
    return make_call(
        "qnn.conv2d", data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale,
        kernel_size=None if kernel_size is None else sizes(kernel_size, 2), channels=channels,
        strides=sizes(strides, 2), padding=both_sides(padding, 2), dilation=sizes(dilation, 2),
        groups=groups, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


@builder("qnn.dense")
def dense(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    units: int | None,
    out_dtype: str = "int32",
) -> Call:
    """Multiply quantized matrices; the int32 result has the scale input_scale * kernel_scale."""
    args = (data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
    return make_call("qnn.dense", *args, units=units, out_dtype=out_dtype)


@builder("qnn.contrib_dense_pack")
def contrib_dense_pack(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    kernel_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "int32",
) -> Call:
    """Multiply by a weight whose rows are packed, in a layout such as "NC32n4c"."""
    args = (data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
    attrs = {"weight_layout": kernel_layout, "units": units, "out_dtype": out_dtype}
    return make_call("qnn.contrib_dense_pack", *args, **attrs)


@builder("qnn.batch_matmul")
def batch_matmul(
    x: Expr,
    y: Expr,
    x_zero_point: Expr,
    y_zero_point: Expr,
    x_scale: Expr,
    y_scale: Expr,
    out_dtype: str = "int32",
) -> Call:
    """Multiply quantized (b, m, k) by (b, n, k); the result has the scale x_scale * y_scale."""
    args = (x, y, x_zero_point, y_zero_point, x_scale, y_scale)
    attrs = {"out_dtype": out_dtype, "transpose_a": False, "transpose_b": True}
    return make_call("qnn.batch_matmul", *args, **attrs)


@builder("qnn.conv2d_transpose")
def conv2d_transpose(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Size = (0, 0),
    out_dtype: str = "int32",
) -> Call:
    """Apply the transposed convolution; the result has the scale input_scale * kernel_scale."""
    args = (data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
    return make_call(
        "qnn.conv2d_transpose", *args,
        kernel_size=None if kernel_size is None else sizes(kernel_size, 2), channels=channels,
        strides=sizes(strides, 2), padding=both_sides(padding, 2), dilation=sizes(dilation, 2),
        groups=groups, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        output_padding=sizes(output_padding, 2), out_dtype=out_dtype,
    )  # fmt: skip


_LINEAR: dict[str, TypeRule] = {
    "qnn.conv2d": infer_conv,
    "qnn.conv2d_transpose": infer_conv_transpose,
    "qnn.dense": infer_dense,
    "qnn.contrib_dense_pack": infer_dense_pack,
    "qnn.batch_matmul": infer_batch_matmul,
}


@type_rule(*_LINEAR)
def infer_linear(call: Inputs) -> Type:
    call.count(6)
    return _infer_plain(call, 2, _LINEAR[call.name])


@expansion(*_LINEAR)
def expand_linear(call: Call, args: Sequence[Expr]) -> Expr:
    """Apply the operator to int32 values without their zero points."""
    attrs = {**attrs_of(call), "out_dtype": _result(call).dtype}
    attrs.pop("weight_layout", None)
    axis = 0
    if "kernel_layout" in attrs:
        axis = attrs["kernel_layout"].index("O")
    data = _centered(call, args, 0, 2, -1)
    weight = _centered(call, args, 1, 3, axis)
    return plain(f"nn.{name_of(call).removeprefix('qnn.')}", data, weight, **attrs)


def _centered(call: Call, args: Sequence[Expr], index: int, zero: int, axis: int) -> Expr:
    """Return an argument in int32 without its zero point, which is argument `zero`."""
    value, point = args[index], args[zero]
    ndim = len(type_of(call, index).shape)
    if isinstance(point, ast.Constant):
        points = point.value
        if points.size != 1 and not points.any():
            points = np.zeros((), "int32")
        if points.size != 1 and (index == 0 or name_of(call) == "qnn.batch_matmul"):
            points = per_tensor(points)
        return without_zero_point(value, along(points, axis, ndim))
    shift = Scale(point, type_of(call, zero)).along(axis, ndim, "int32")
    return plain("subtract", plain("cast", value, dtype="int32"), shift)


# ---- add, subtract, mul


def _binary(name: str, verb: str) -> None:
    def build(
        lhs: Expr,
        rhs: Expr,
        lhs_scale: Expr,
        lhs_zero_point: Expr,
        rhs_scale: Expr,
        rhs_zero_point: Expr,
        output_scale: Expr,
        output_zero_point: Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Call:
        args = (lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point)
        out = (output_scale, output_zero_point)
        return make_call(f"qnn.{name}", *args, *out, lhs_axis=lhs_axis, rhs_axis=rhs_axis)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{verb} quantized tensors; `lhs_axis` is that of a scale per channel."
    builder(f"qnn.{name}")(build)


_binary("add", "Add")
_binary("subtract", "Subtract")
_binary("mul", "Multiply")


@type_rule("qnn.add", "qnn.mul", "qnn.subtract")
def infer_binary(call: Inputs) -> Type:
    call.count(8)
    lhs, rhs = call.tensor(0), call.tensor(1)
    shape = broadcast(lhs.shape, rhs.shape)
    if shape is None or lhs.dtype != rhs.dtype:
        raise call.error(f"operands of types {lhs} and {rhs}", "one dtype, shapes that broadcast")
    return TensorType(shape, lhs.dtype)


@expansion("qnn.add", "qnn.subtract")
def expand_sum(call: Call, args: Sequence[Expr]) -> Expr:
    """Requantize both operands to the result's scale, then add or subtract."""
    lhs_scale, lhs_zero, rhs_scale, rhs_zero, *out = _values(call, args, 2, 3, 4, 5, 6, 7)
    axes = [int(attrs_of(call)[f"{side}_axis"]) for side in ("lhs", "rhs")]
    dims = [len(type_of(call, i).shape) for i in (0, 1)]
    lhs = requantized(args[0], (lhs_scale, lhs_zero, *out), axes[0], dims[0])
    rhs = requantized(args[1], (rhs_scale, rhs_zero, *out), axes[1], dims[1])
    shift, dtype = const(per_tensor(out[1]), "int32"), _result(call).dtype
    if name_of(call) == "qnn.add":  # both operands contain the zero point, the sum has it twice
        return saturated(plain("subtract", plain("add", lhs, rhs), shift), dtype)
    return saturated(plain("add", plain("subtract", lhs, rhs), shift), dtype)


@expansion("qnn.mul")
def expand_mul(call: Call, args: Sequence[Expr]) -> Expr:
    """Multiply in int32, then requantize from the product of the scales."""
    lhs_scale, lhs_zero, rhs_scale, rhs_zero, *out = _values(call, args, 2, 3, 4, 5, 6, 7)
    dims = [len(type_of(call, i).shape) for i in (0, 1)]
    axes = [int(attrs_of(call)[f"{side}_axis"]) for side in ("lhs", "rhs")]
    lhs = without_zero_point(args[0], along(lhs_zero, axes[0], dims[0]))
    rhs = without_zero_point(args[1], along(rhs_zero, axes[1], dims[1]))
    # Channels from the end, where both shapes are aligned.
    channels = {
        axis % ndim - ndim
        for axis, ndim, scale in zip(axes, dims, (lhs_scale, rhs_scale), strict=True)
        if scale.size > 1
    }
    if len(channels) > 1:
        raise UnsupportedOp("qnn.mul with scales along two axes", "scales along one")
    scale = lhs_scale.astype("float64") * rhs_scale.astype("float64")
    quantization = (scale, np.zeros((), "int32"), *out)
    axis = channels.pop() if channels else -1
    result = requantized(plain("multiply", lhs, rhs), quantization, axis, max(dims))
    return saturated(result, _result(call).dtype)


# ---- concatenate, pooling


@builder("qnn.concatenate")
def concatenate(
    data: Any,
    input_scales: Any,
    input_zero_points: Any,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int,
) -> Call:
    """Concatenate tensors of several scales, requantized to one."""
    scales, zeros = as_tuple(input_scales), as_tuple(input_zero_points)
    args = (as_tuple(data), scales, zeros, output_scale, output_zero_point)
    return make_call("qnn.concatenate", *args, axis=axis)


@type_rule("qnn.concatenate")
def infer_quantized_concatenate(call: Inputs) -> Type:
    call.count(5)
    return _infer_plain(call, 1, infer_concatenate)


@expansion("qnn.concatenate")
def expand_concatenate(call: Call, args: Sequence[Expr]) -> Expr:
    data, scales, zeros = args[:3]
    out_scale, out_zero = _values(call, args, 3, 4)
    axis, dtype = _axis(call), _result(call).dtype
    if not (isinstance(scales, ast.Tuple) and isinstance(zeros, ast.Tuple)):
        raise UnsupportedOp("qnn.concatenate with scales that are computed", "tuples of constants")
    parts = []
    for i, (scale, zero) in enumerate(zip(scales.fields, zeros.fields, strict=True)):
        value = data.fields[i] if isinstance(data, ast.Tuple) else ast.TupleGetItem(data, i)
        quantization = [constant(call, scale, "a scale"), constant(call, zero, "a zero point")]
        quantization += [out_scale, out_zero]
        wide = requantized(value, quantization, -1, len(_result(call).shape))
        parts.append(saturated(wide, dtype))
    return plain("concatenate", ast.Tuple(parts), axis=axis)


@builder("qnn.avg_pool2d")
def avg_pool2d(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    pool_size: Size,
    strides: Size,
    padding: Size,
    dilation: Size,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
) -> Call:
    """Average over windows of quantized values."""
    args = (data, input_scale, input_zero_point, output_scale, output_zero_point)
    return make_call(
        "qnn.avg_pool2d", *args, pool_size=sizes(pool_size, 2), strides=sizes(strides, 2),
        padding=both_sides(padding, 2), dilation=sizes(dilation, 2), ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, layout=layout, out_layout=out_layout,
    )  # fmt: skip


@type_rule("qnn.avg_pool2d")
def infer_avg_pool2d(call: Inputs) -> Type:
    call.count(5)
    return _infer_plain(call, 1, infer_pool)


@expansion("qnn.avg_pool2d")
def expand_avg_pool2d(call: Call, args: Sequence[Expr]) -> Expr:
    """Average int32 values at the scale of the output."""
    quantization = _values(call, args, 1, 2, 3, 4)
    wide = requantized(args[0], quantization, -1, len(_result(call).shape))
    return saturated(plain("nn.avg_pool2d", wide, **attrs_of(call)), _result(call).dtype)

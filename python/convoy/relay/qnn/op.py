"""Helpers of TVM 0.18's `relay.qnn.op`. A quantised value q stands for scale * (q - zero point);
scales and zero points are expressions, which must be constants when the module is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.op.call import as_tuple, call, sizes
from convoy.relay.op.call import padding as padded

Size = int | Sequence[int]


def quantize(
    data: Expr, output_scale: Expr, output_zero_point: Expr, axis: int = -1, out_dtype: str = "int8"
) -> Call:
    """round(data / scale) + zero point; scales may be vectors along `axis`."""
    args = (data, output_scale, output_zero_point)
    return call("qnn.quantize", *args, axis=axis, out_dtype=out_dtype)


def dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Call:
    """scale * (data - zero point)."""
    args = (data, input_scale, input_zero_point)
    return call("qnn.dequantize", *args, axis=axis, out_dtype=out_dtype)


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
    """The same values in other steps. Rounding is "UPWARD" (also for "None") or "TONEAREST"."""
    return call(
        "qnn.requantize", data, input_scale, input_zero_point, output_scale, output_zero_point,
        axis=axis, rounding=rounding, compute_dtype=compute_dtype, out_dtype=out_dtype,
    )  # fmt: skip


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
    """A convolution of quantised values, as int32 of scale input_scale * kernel_scale."""
    return call(
        "qnn.conv2d", data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale,
        kernel_size=None if kernel_size is None else sizes(kernel_size, 2), channels=channels,
        strides=sizes(strides, 2), padding=padded(padding, 2), dilation=sizes(dilation, 2),
        groups=groups, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


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
    """A product of quantised values, as int32 of scale input_scale * kernel_scale."""
    args = (data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
    return call("qnn.dense", *args, units=units, out_dtype=out_dtype)


def concatenate(
    data: Any,
    input_scales: Any,
    input_zero_points: Any,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int,
) -> Call:
    """Values of several scales, joined in one."""
    scales, zeros = as_tuple(input_scales), as_tuple(input_zero_points)
    args = (as_tuple(data), scales, zeros, output_scale, output_zero_point)
    return call("qnn.concatenate", *args, axis=axis)


def add(lhs: Expr, rhs: Expr, *quantisation: Expr, lhs_axis: int = -1, rhs_axis: int = -1) -> Call:
    """The sum; then come scale and zero point of lhs, of rhs and of the result."""
    return call("qnn.add", lhs, rhs, *quantisation, lhs_axis=lhs_axis, rhs_axis=rhs_axis)


def subtract(
    lhs: Expr, rhs: Expr, *quantisation: Expr, lhs_axis: int = -1, rhs_axis: int = -1
) -> Call:
    """As add."""
    return call("qnn.subtract", lhs, rhs, *quantisation, lhs_axis=lhs_axis, rhs_axis=rhs_axis)


def mul(lhs: Expr, rhs: Expr, *quantisation: Expr, lhs_axis: int = -1, rhs_axis: int = -1) -> Call:
    """As add."""
    return call("qnn.mul", lhs, rhs, *quantisation, lhs_axis=lhs_axis, rhs_axis=rhs_axis)

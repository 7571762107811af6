"""Quantized convolutions and GEMMs.

They run on int32 without the zero points, so padding is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.convolution import infer_conv
from convoy.relay.ops.convolution_transpose import infer_conv_transpose
from convoy.relay.ops.dense import infer_batch_matmul, infer_dense, infer_dense_pack
from convoy.relay.ops.expansion_call import attrs_of, name_of, plain, type_of
from convoy.relay.ops.qnn_arithmetic import Scale, along, per_tensor, without_zero_point
from convoy.relay.ops.qnn_call import infer_plain, result_of
from convoy.relay.ops.registry import TypeRule, builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type


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
    return infer_plain(call, 2, _LINEAR[call.name])


@expansion(*_LINEAR)
def expand_linear(call: Call, args: Sequence[Expr]) -> Expr:
    """Apply the operator to int32 values without their zero points."""
    attrs = {**attrs_of(call), "out_dtype": result_of(call).dtype}
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

"""Quantized pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.expansion_call import attrs_of, const, plain
from convoy.relay.ops.pooling import infer_pool
from convoy.relay.ops.qnn_arithmetic import requantized, saturated
from convoy.relay.ops.qnn_call import constants, infer_plain, result_of
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type


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
    return infer_plain(call, 1, infer_pool)


@expansion("qnn.avg_pool2d")
def expand_avg_pool2d(call: Call, args: Sequence[Expr]) -> Expr:
    """Average int32 values at the scale of the output."""
    quantization, attrs = constants(call, args, 1, 2, 3, 4), attrs_of(call)
    zero = quantization[3]
    padded = attrs["count_include_pad"] and any(attrs["padding"])
    if padded:  # with zeros, which are real zeros where the zero point is 0
        quantization = [*quantization[:3], np.zeros_like(zero)]
    average = plain(
        "nn.avg_pool2d",
        requantized(args[0], quantization, -1, len(result_of(call).shape)),
        **attrs,
    )
    if padded:
        average = plain("add", average, const(zero, "int32"))
    return saturated(average, result_of(call).dtype)

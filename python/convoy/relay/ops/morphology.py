"""Grayscale dilation of images."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import topi
from convoy.relay.ops.arguments import both_sides, make_call, sizes
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import (
    dilated_extent,
    infer_padding,
    infer_window,
    relax_padding,
)
from convoy.relay.types import Dim, TensorType, Type


@builder("image.dilation2d")
def dilation2d(
    data: Expr,
    weight: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilations: Any = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> Call:
    """Take the maximum over a window of data plus weight.

    Args:
        data: (n, c, h, w) in `data_layout`.
        weight: (c, kh, kw) in `kernel_layout`.
    """
    steps, gaps = (
        v if isinstance(v, int) or len(v) < 4 else tuple(v)[:2] for v in (strides, dilations)
    )  # TVM reads the first two of four
    return make_call(
        "image.dilation2d", data, weight, strides=sizes(steps, 2), padding=both_sides(padding, 2),
        dilations=sizes(gaps, 2), data_layout=data_layout, kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


@type_rule("image.dilation2d")
def infer_dilation2d(call: Inputs) -> Type:
    call.count(2)
    layout = call.layout(call.attrs["data_layout"], "NCHW")
    kernel = call.layout(call.attrs["kernel_layout"], "IHW")
    data = call.tensor(0, 4)
    n, c, *size = layout.to_axes(data.shape, "NCHW")
    _, *window = kernel.to_axes(call.tensor(1, 3).shape, "IHW")
    strides, dilation = call.positive("strides", 2), call.positive("dilations", 2)
    out: list[Dim] = []
    for i, (before, after) in enumerate(infer_padding(call, 2)):
        extent = dilated_extent(window[i], dilation[i])
        out.append(infer_window(call, size[i], extent, before + after, strides[i]))
    return TensorType(layout.from_axes((n, c, *out), "NCHW"), call.out_dtype(data.dtype))


@converter("image.dilation2d")
def convert_dilation2d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    layouts = (attrs["data_layout"], attrs["kernel_layout"])
    compute = {
        ("NCHW", "IHW"): topi.image.dilation2d_nchw,
        ("NHWC", "HWI"): topi.image.dilation2d_nhwc,
    }
    if layouts not in compute:
        raise op.unsupported(f"layouts {layouts}", "NCHW with IHW, or NHWC with HWI")
    return op.te(
        compute[layouts],
        *op.args,
        ints(attrs["strides"]),
        relax_padding(attrs["padding"], 2),
        ints(attrs["dilations"]),
        op.result.dtype,
    )

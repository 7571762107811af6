"""Transposed convolutions over one, two and three axes.

Relax lowers them in channels-first layouts only; other layouts are transposed there and back.
Normalization makes a 2D one a dgrad.
"""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.layout import layout
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Size
from convoy.relay.ops.convolution import make_conv
from convoy.relay.ops.layouts import from_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import (
    SPATIAL,
    dilated_extent,
    group_size,
    infer_padding,
    infer_weight,
    rank_of,
    relax_padding,
)
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type

_NAMES = [f"nn.conv{rank}d_transpose" for rank in SPATIAL]


@builder("nn.conv1d_transpose")
def conv1d_transpose(
    data: Expr,
    weight: Expr,
    strides: Size = (1,),
    padding: Size = (0,),
    dilation: Size = (1,),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str = "",
    output_padding: Size = (0,),
    out_dtype: str = "",
) -> Call:
    """Transposed convolution over one axis; see `conv2d_transpose`."""
    return make_conv("nn.conv1d_transpose", 1, **locals())


@builder("nn.conv2d_transpose")
def conv2d_transpose(
    data: Expr,
    weight: Expr,
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
    out_dtype: str = "",
) -> Call:
    """Transposed convolution: the gradient of a convolution with respect to its data (dgrad).

    Args:
        data: (n, c, h, w) in `data_layout`.
        weight: (c, o / groups, kh, kw) in `kernel_layout`: a convolution's weight as it is.
        strides, padding, dilation, groups: Those of the convolution.
        channels, kernel_size: The output channels and the window; None takes them from the
            weight's type.
        output_padding: Rows and columns to add at the end.
        out_layout: The result's layout; empty for `data_layout`.
        out_dtype: The result's dtype; empty for that of the data.

    Returns:
        (n, o, oh, ow), where
        oh = (h - 1) * stride + (kh - 1) * dilation + 1 - padding + output_padding.
    """
    return make_conv("nn.conv2d_transpose", 2, **locals())


@builder("nn.conv3d_transpose")
def conv3d_transpose(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    dilation: Size = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Size = (0, 0, 0),
    out_dtype: str = "",
) -> Call:
    """Transposed convolution over three axes; see `conv2d_transpose`."""
    return make_conv("nn.conv3d_transpose", 3, **locals())


@type_rule(*_NAMES)
def infer_conv_transpose(call: Inputs) -> Type:
    call.count(2)
    rank = rank_of(call.name)
    spatial = SPATIAL[rank]
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    layout = call.layout(attrs["data_layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    n, c, *size = layout.to_axes(data.shape, "NC" + spatial)
    strides, dilation = call.positive("strides", rank), call.positive("dilation", rank)
    extra = call.ints("output_padding")
    if len(extra) == 1:
        extra = extra * rank
    if len(extra) != rank:
        raise call.error(f"output_padding={list(extra)}", f"{rank} values")
    group_size(call, c, groups, "channels")
    channels = attrs["channels"]
    per_group: Dim = DynamicDim()
    if channels is not None:
        per_group = group_size(call, channels, groups, "channels")
    _, out_per_group, *kernel = infer_weight(call, rank, "IO" + spatial, [c, per_group])
    out: list[Dim] = []
    for i, (before, after) in enumerate(infer_padding(call, rank)):
        extent, d = dilated_extent(kernel[i], dilation[i]), size[i]
        if isinstance(extent, int) and isinstance(d, int):
            result = (d - 1) * strides[i] + extent - before - after + extra[i]
            if result <= 0:
                raise call.error(f"an output of {result} elements along {spatial[i]}", "at least 1")
            out.append(result)
        else:
            out.append(DynamicDim())
    total = out_per_group * groups if isinstance(out_per_group, int) else DynamicDim()
    out_layout = call.layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    shape = out_layout.from_axes((n, total, *out), "NC" + spatial)
    return TensorType(shape, call.out_dtype(data.dtype))


@converter(*_NAMES)
def convert_conv_transpose(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, rank_of(op.name)
    spatial = SPATIAL[rank]
    data_layout = layout(attrs["data_layout"], "NC" + spatial)
    kernel_layout = layout(attrs["kernel_layout"], "IO" + spatial)
    out_layout = layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    for found in (data_layout, kernel_layout, out_layout):
        if not found.is_plain:
            raise op.unsupported(f"layout {found.name}", "a layout without split axes")
    strides, extra = ints(attrs["strides"]), ints(attrs["output_padding"])
    extra = extra * rank if len(extra) == 1 else extra
    # TIR refuses output_padding of at least a stride; less padding gives the same sizes.
    padding = relax_padding(attrs["padding"], rank)
    for i, (more, stride) in enumerate(zip(extra, strides, strict=False)):
        if more >= stride:
            padding[rank + i] -= more
            extra[i] = 0
    result = getattr(relax.op.nn, f"conv{rank}d_transpose")(
        op.permute(op.args[0], [data_layout.index(a) for a in "NC" + spatial]),
        op.permute(op.args[1], [kernel_layout.index(a) for a in "IO" + spatial]),
        strides=strides,
        padding=padding,
        output_padding=extra,
        dilation=ints(attrs["dilation"]),
        groups=attrs.get_int("groups"),
        data_layout="NC" + spatial,
        kernel_layout="IO" + spatial,
        out_dtype=op.result.dtype,
    )
    return from_plain(op, op.emit(result), "NC" + spatial, out_layout, op.result)

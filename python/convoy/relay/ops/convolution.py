"""Convolutions over one, two and three axes.

Relax lowers any plain layout of data and weight, so layouts pass through; split ones (NCHWc) are
merged first.
"""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.layout import layout
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.layouts import from_plain, to_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import (
    SPATIAL,
    dilated_extent,
    group_size,
    infer_padding,
    infer_weight,
    infer_window,
    rank_of,
    relax_padding,
)
from convoy.relay.shapes import is_int
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType

# ---- builders


def make_conv(name: str, rank: int, data: Expr, weight: Expr, **attrs: Any) -> Call:
    """Make a call of a convolution over `rank` axes, its sizes expanded to all of them."""
    for field in ("strides", "dilation"):
        attrs[field] = sizes(attrs[field], rank)
    if attrs["kernel_size"] is not None:
        attrs["kernel_size"] = sizes(attrs["kernel_size"], rank)
    if "output_padding" in attrs:
        attrs["output_padding"] = sizes(attrs["output_padding"], rank)
    attrs["padding"] = both_sides(attrs["padding"], rank)
    return make_call(name, data, weight, **attrs)


@builder("nn.conv1d")
def conv1d(
    data: Expr,
    weight: Expr,
    strides: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve over one axis; see `conv2d`."""
    return make_conv("nn.conv1d", 1, **locals())


@builder("nn.conv2d")
def conv2d(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve over two axes (fprop).

    Args:
        data: (n, c, h, w) in `data_layout`.
        weight: (o, c / groups, kh, kw) in `kernel_layout`.
        strides, dilation: One value for both axes, or one for each.
        padding: One value, one for each axis, or (top, left, bottom, right).
        channels, kernel_size: The output channels and the window; None takes them from the
            weight's type.
        out_layout: The result's layout; empty for `data_layout`.
        out_dtype: The result's dtype; empty for that of the data.

    Returns:
        (n, o, oh, ow), where oh = (h + padding - ((kh - 1) * dilation + 1)) / stride + 1.
    """
    return make_conv("nn.conv2d", 2, **locals())


@builder("nn.conv3d")
def conv3d(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    dilation: Size = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve over three axes; see `conv2d`."""
    return make_conv("nn.conv3d", 3, **locals())


@builder("nn.contrib_conv2d_nchwc")
def contrib_conv2d_nchwc(
    data: Expr,
    kernel: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve data whose channels are split into blocks; see `conv2d`."""
    attrs = locals()
    return make_conv("nn.contrib_conv2d_NCHWc", 2, weight=attrs.pop("kernel"), **attrs)


# ---- type rule


@type_rule(
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_NCHWc",
)
def infer_conv(call: Inputs) -> TensorType:
    call.count(2)
    rank = rank_of(call.name)
    spatial = SPATIAL[rank]
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    layout = call.layout(attrs["data_layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    n, c, *size = layout.to_axes(data.shape, "NC" + spatial)
    strides, dilation = call.positive("strides", rank), call.positive("dilation", rank)
    known = DynamicDim() if attrs["channels"] is None else attrs["channels"]
    channels: list[Dim] = [known, group_size(call, c, groups, "channels")]
    times = _multiplier(call, c, groups, "OI" + spatial)
    if times > 1:  # a weight (c, times) of `times` outputs for each channel
        channels = [c, times]
    out_channels, _, *kernel = infer_weight(call, rank, "OI" + spatial, channels)
    if times > 1:
        out_channels = groups * times
    if isinstance(out_channels, int):
        group_size(call, out_channels, groups, "output channels")
    out: list[Dim] = []
    for i, (before, after) in enumerate(infer_padding(call, rank)):
        extent = dilated_extent(kernel[i], dilation[i])
        out.append(infer_window(call, size[i], extent, before + after, strides[i]))
    out_layout = call.layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    shape = out_layout.from_axes((n, out_channels, *out), "NC" + spatial)
    return TensorType(shape, call.out_dtype(data.dtype))


def _multiplier(call: Inputs, channels: Dim, groups: int, axes: str) -> int:
    """Return the number of outputs for each channel that a depthwise weight says, 1 for others."""
    if channels != groups or groups == 1:
        return 1
    weight, given = call.known(1), call.attrs["channels"]
    if weight is None:
        return given // groups if given is not None and given % groups == 0 else 1
    kernel = call.layout(call.attrs["kernel_layout"], axes)
    if len(kernel.parts) != len(weight.shape):
        return 1
    rows, times = kernel.to_axes(weight.shape, axes)[:2]
    if rows != groups or not isinstance(times, int) or given not in (None, groups * times):
        return 1
    return times


# ---- converter


@converter(
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_NCHWc",
)
def convert_conv(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, rank_of(op.name)
    axes = "NC" + SPATIAL[rank]
    data_layout = layout(attrs["data_layout"], axes)
    kernel_layout = layout(attrs["kernel_layout"], "OI" + SPATIAL[rank])
    out_layout = layout(attrs["out_layout"] or attrs["data_layout"], axes)
    data, weight = op.args
    plain = data_layout.axes
    if not data_layout.is_plain:
        data = to_plain(op, data, data_layout, op.shape(0))
    if not kernel_layout.is_plain:
        weight = to_plain(op, weight, kernel_layout, op.shape(1))
    kernel = kernel_layout.axes
    rows, times, *window = kernel_layout.to_axes(op.type(1).shape, "OI" + SPATIAL[rank])
    channels = data_layout.to_axes(op.type(0).shape, axes)[1]
    is_depthwise = is_int(channels) and channels == attrs.get_int("groups") == rows != 1
    if is_depthwise and is_int(times, *window) and times != 1:
        # TVM's depthwise weight (c, times) has its outputs as rows.
        weight = op.permute(weight, [kernel.index(a) for a in "OI" + SPATIAL[rank]])
        shape = [int(n) for n in (rows * times, 1, *window)]  # type: ignore[operator, arg-type]
        weight, kernel = op.reshape(weight, shape), "OI" + SPATIAL[rank]
    result = getattr(relax.op.nn, f"conv{rank}d")(
        data,
        weight,
        strides=ints(attrs["strides"]),
        padding=relax_padding(attrs["padding"], rank),
        dilation=ints(attrs["dilation"]),
        groups=attrs.get_int("groups"),
        data_layout=plain,
        kernel_layout=kernel,
        out_dtype=op.result.dtype,
    )
    if out_layout.name == plain:
        return result
    return from_plain(op, op.emit(result), plain, out_layout, op.result)

"""The gradient of a 2D convolution with respect to its weight (wgrad).

Its Relay operator uses Conv2DAttrs with shifted meanings: `data_layout` is the gradient's layout,
`kernel_layout` the data's, and `out_layout` the weight's.

It becomes Convoy's own operator where that is defined. Otherwise (integers, for one) it becomes a
forward convolution with batch and channels exchanged: out[o, i] is the sum over n of data[n, i]
correlated with grad[n, o].
"""

from __future__ import annotations

from convoy.ir.dtypes import FLOAT_DTYPES
from convoy.relay.ast import Call, Expr
from convoy.relay.layout import Layout, layout
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Size
from convoy.relay.ops.convolution import make_conv
from convoy.relay.ops.layouts import from_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import group_size, relax_padding
from convoy.relay.shapes import same_dim
from convoy.relay.types import TensorType, Type


@builder("nn.conv2d_backward_weight")
def conv2d_backward_weight(
    grad: Expr,
    data: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> Call:
    """Compute the gradient of a convolution's weight.

    Args:
        grad: The gradient of the convolution's result, (n, o, oh, ow) in `grad_layout`.
        data: The convolution's data, (n, c, h, w) in `data_layout`.
        strides, padding, dilation, groups: Those of the convolution.
        channels: The convolution's output channels; unused.
        kernel_size: The window.
        kernel_layout: The result's layout.
        out_dtype: The result's dtype; empty for that of `grad`.

    Returns:
        (o, c / groups, kh, kw) in `kernel_layout`.
    """
    return make_conv(
        "nn.conv2d_backward_weight",
        2,
        grad,
        data,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        channels=channels,
        kernel_size=kernel_size,
        data_layout=grad_layout,
        kernel_layout=data_layout,
        out_layout=kernel_layout,
        out_dtype=out_dtype,
    )


@type_rule("nn.conv2d_backward_weight")
def infer_conv2d_backward_weight(call: Inputs) -> Type:
    call.count(2)
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    grad_layout = call.layout(attrs["data_layout"], "NCHW")
    data_layout = call.layout(attrs["kernel_layout"], "NCHW")
    kernel_layout = call.layout(attrs["out_layout"] or "OIHW", "OIHW")
    grad = call.tensor(0, len(grad_layout.parts))
    data = call.tensor(1, len(data_layout.parts))
    batch, out_channels, *_ = grad_layout.to_axes(grad.shape, "NCHW")
    data_batch, in_channels, *_ = data_layout.to_axes(data.shape, "NCHW")
    if not same_dim(batch, data_batch):
        raise call.error(f"batches of {batch} and {data_batch}", "one batch")
    shape = (
        out_channels,
        group_size(call, in_channels, groups, "channels"),
        *call.positive("kernel_size", 2),
    )
    return TensorType(kernel_layout.from_axes(shape, "OIHW"), call.out_dtype(grad.dtype))


@converter("nn.conv2d_backward_weight")
def convert_conv2d_backward_weight(op: OpCall) -> RelaxExpr:
    from convoy.ops import conv2d_wgrad  # needs TVM

    grad_layout = layout(op.attrs["data_layout"], "NCHW")
    data_layout = layout(op.attrs["kernel_layout"], "NCHW")
    out_layout = layout(op.attrs["out_layout"] or "OIHW", "OIHW")
    for found in (grad_layout, data_layout, out_layout):
        if not found.is_plain:
            raise op.unsupported(f"layout {found.name}", "a layout without split axes")
    if not _is_wgrad(op, grad_layout, data_layout):
        return _as_forward(op, grad_layout, data_layout, out_layout)
    top, left, bottom, right = relax_padding(op.attrs["padding"], 2)
    return conv2d_wgrad(
        op.args[0],
        op.permute(op.args[1], [data_layout.index(a) for a in grad_layout.axes]),
        kernel_size=ints(op.attrs["kernel_size"]),
        strides=ints(op.attrs["strides"]),
        padding=(top, left, bottom, right),
        dilation=ints(op.attrs["dilation"]),
        groups=op.attrs.get_int("groups"),
        data_layout=grad_layout.axes,
        kernel_layout=out_layout.axes,
        out_dtype=op.result.dtype,
    )


def _is_wgrad(op: OpCall, grad_layout: Layout, data_layout: Layout) -> bool:
    """Check whether a convolution of floats exists whose wgrad has these sizes."""
    attrs = op.attrs
    dtypes = {op.type(0).dtype, op.type(1).dtype}
    if len(dtypes) != 1 or not {*dtypes, op.result.dtype} <= {*FLOAT_DTYPES}:
        return False
    padding = relax_padding(attrs["padding"], 2)
    grad = grad_layout.to_axes(op.shape(0), "NCHW")
    data = data_layout.to_axes(op.shape(1), "NCHW")
    for i in range(2):
        extent = (int(attrs["kernel_size"][i]) - 1) * int(attrs["dilation"][i]) + 1
        room = int(data[2 + i]) + padding[i] + padding[2 + i] - extent  # type: ignore[arg-type]
        if room < 0 or room // int(attrs["strides"][i]) + 1 != grad[2 + i]:
            return False
    return grad[0] == data[0] and min(padding) >= 0


def _as_forward(
    op: OpCall, grad_layout: Layout, data_layout: Layout, out_layout: Layout
) -> RelaxExpr:
    """Emit a forward convolution with batch and channels exchanged."""
    attrs, groups = op.attrs, op.attrs.get_int("groups")
    grad = op.permute(op.args[0], [grad_layout.index(a) for a in "NCHW"])
    data = op.permute(op.args[1], [data_layout.index(a) for a in "NCHW"])
    n, c, h, w = (int(d) for d in data_layout.to_axes(op.shape(1), "NCHW"))  # type: ignore[arg-type]
    kernel = ints(attrs["kernel_size"])
    if groups > 1:
        # (n, g * c', h, w) to (g * n, c', h, w): the groups move into the batch, the axis that
        # the exchanged convolution sums over group by group.
        data = op.reshape(data, (n, groups, c // groups, h, w))
        data = op.permute(data, (1, 0, 2, 3, 4))
        data = op.reshape(data, (groups * n, c // groups, h, w))
    result = relax.op.nn.conv2d(
        data,
        grad,
        strides=ints(attrs["dilation"]),
        padding=relax_padding(attrs["padding"], 2),
        dilation=ints(attrs["strides"]),
        groups=groups,
        data_layout="CNHW",
        kernel_layout="IOHW",
        out_layout="CNHW",
        out_dtype=op.result.dtype,
    )
    # (o, i, >= kh, >= kw): the last rows and columns come from data that no output used.
    value = op.emit(result)
    shape = [int(d) for d in value.ty.shape.values]
    if shape[2:] != kernel:
        value = op.emit(relax.op.strided_slice(value, axes=[2, 3], begin=[0, 0], end=kernel))
    return from_plain(op, value, "OIHW", out_layout, op.result)

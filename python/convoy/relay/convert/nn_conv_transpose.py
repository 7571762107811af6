"""Transposed convolutions (dgrad) and the weight's gradient (wgrad).

Relax lowers transposed convolutions of channels-first layouts only; others are transposed there
and back, and normalisation makes dgrad of them. The weight's gradient is convoy's own operator;
where that has no meaning (integers, say) it is a forward convolution in which channels and batch
change places: out[o, i] = sum over n of data[n, i] correlated with grad[n, o].
"""

from __future__ import annotations

from tvm import relax

from convoy.graph.expr import FLOAT_DTYPES
from convoy.ops import conv2d_wgrad
from convoy.relay.convert.context import OpCall, RelaxExpr, converter
from convoy.relay.convert.layouts import from_plain
from convoy.relay.convert.nn_conv import flat_padding
from convoy.relay.layout import Layout, layout

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_TRANSPOSE = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


def _conv_transpose(op: OpCall, rank: int) -> RelaxExpr:
    attrs, spatial = op.attrs, _SPATIAL[rank]
    data_layout = layout(attrs["data_layout"], "NC" + spatial)
    kernel_layout = layout(attrs["kernel_layout"], "IO" + spatial)
    out_layout = layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    for found in (data_layout, kernel_layout, out_layout):
        if not found.is_plain:
            raise op.unsupported(f"layout {found.name}", "a layout without split axes")
    extra = [int(p) for p in attrs["output_padding"]]
    strides = tuple(int(s) for s in attrs["strides"])
    extra = extra * rank if len(extra) == 1 else extra
    dilation = tuple(int(d) for d in attrs["dilation"])
    # TIR refuses output_padding of at least a stride; the same sizes come out of less padding.
    padding = flat_padding(attrs["padding"], rank)
    for i, (more, stride) in enumerate(zip(extra, strides, strict=False)):
        if more >= stride:
            padding[rank + i] -= more
            extra[i] = 0
    result = _TRANSPOSE[rank](
        op.permute(op.args[0], [data_layout.index(a) for a in "NC" + spatial]),
        op.permute(op.args[1], [kernel_layout.index(a) for a in "IO" + spatial]),
        strides=strides,
        padding=padding,
        output_padding=tuple(extra),
        dilation=dilation,
        groups=attrs.get_int("groups"),
        data_layout="NC" + spatial,
        kernel_layout="IO" + spatial,
        out_dtype=op.result.dtype,
    )
    return from_plain(op, op.emit(result), "NC" + spatial, out_layout, op.result)


@converter("nn.conv1d_transpose")
def conv1d_transpose(op: OpCall) -> RelaxExpr:
    return _conv_transpose(op, 1)


@converter("nn.conv2d_transpose")
def conv2d_transpose(op: OpCall) -> RelaxExpr:
    return _conv_transpose(op, 2)


@converter("nn.conv3d_transpose")
def conv3d_transpose(op: OpCall) -> RelaxExpr:
    return _conv_transpose(op, 3)


@converter("nn.conv2d_backward_weight")
def conv2d_backward_weight(op: OpCall) -> RelaxExpr:
    """Attributes have shifted meanings here, as type inference documents."""
    grad_layout = layout(op.attrs["data_layout"], "NCHW")
    data_layout = layout(op.attrs["kernel_layout"], "NCHW")
    out_layout = layout(op.attrs["out_layout"] or "OIHW", "OIHW")
    for found in (grad_layout, data_layout, out_layout):
        if not found.is_plain:
            raise op.unsupported(f"layout {found.name}", "a layout without split axes")
    if not _is_wgrad(op, grad_layout, data_layout):
        return _as_forward(op, grad_layout, data_layout, out_layout)
    top, left, bottom, right = flat_padding(op.attrs["padding"], 2)
    return conv2d_wgrad(
        op.args[0],
        op.permute(op.args[1], [data_layout.index(a) for a in grad_layout.axes]),
        kernel_size=[int(k) for k in op.attrs["kernel_size"]],
        strides=[int(s) for s in op.attrs["strides"]],
        padding=(top, left, bottom, right),
        dilation=[int(d) for d in op.attrs["dilation"]],
        groups=op.attrs.get_int("groups"),
        data_layout=grad_layout.axes,
        kernel_layout=out_layout.axes,
        out_dtype=op.result.dtype,
    )


def _is_wgrad(op: OpCall, grad_layout: Layout, data_layout: Layout) -> bool:
    """Whether a forward convolution of floats has the sizes, of which this is the gradient."""
    attrs = op.attrs
    dtypes = {op.type(0).dtype, op.type(1).dtype}
    if len(dtypes) != 1 or not {*dtypes, op.result.dtype} <= {*FLOAT_DTYPES}:
        return False
    padding = flat_padding(attrs["padding"], 2)
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
    attrs, groups = op.attrs, op.attrs.get_int("groups")
    grad = op.permute(op.args[0], [grad_layout.index(a) for a in "NCHW"])
    data = op.permute(op.args[1], [data_layout.index(a) for a in "NCHW"])
    n, c, h, w = (int(d) for d in data_layout.to_axes(op.shape(1), "NCHW"))  # type: ignore[arg-type]
    kernel = [int(k) for k in attrs["kernel_size"]]
    if groups > 1:
        # (n, g * c', h, w) to (g * n, c', h, w): the groups stand in the batch, which is the
        # axis that the swapped convolution sums over, group by group.
        data = op.reshape(data, (n, groups, c // groups, h, w))
        data = op.permute(data, (1, 0, 2, 3, 4))
        data = op.reshape(data, (groups * n, c // groups, h, w))
    out_dtype = op.result.dtype
    result = relax.op.nn.conv2d(
        data,
        grad,
        strides=tuple(int(d) for d in attrs["dilation"]),
        padding=flat_padding(attrs["padding"], 2),
        dilation=tuple(int(s) for s in attrs["strides"]),
        groups=groups,
        data_layout="CNHW",
        kernel_layout="IOHW",
        out_layout="CNHW",
        out_dtype=out_dtype,
    )
    value = op.emit(result)  # (o, i, >= kh, >= kw): rows that no output used stand at the end
    shape = [int(d) for d in value.ty.shape.values]
    if shape[2:] != kernel:
        value = op.emit(relax.op.strided_slice(value, axes=[2, 3], begin=[0, 0], end=kernel))
    return from_plain(op, value, "OIHW", out_layout, op.result)

"""Deformable 2D convolutions, which sample the data at learned offsets."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import topi
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.convolution import infer_conv
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


@builder("nn.deformable_conv2d")
def deformable_conv2d(
    data: Expr,
    offset: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve data sampled at offsets from the regular grid; see `conv2d`.

    Args:
        offset: (n, 2 * deformable_groups * kh * kw, oh, ow): offsets along h and w, in elements.
    """
    return make_call(
        "nn.deformable_conv2d",
        data,
        offset,
        weight,
        strides=sizes(strides, 2),
        padding=both_sides(padding, 2),
        dilation=sizes(dilation, 2),
        deformable_groups=deformable_groups,
        groups=groups,
        channels=channels,
        kernel_size=None if kernel_size is None else sizes(kernel_size, 2),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
    )


@type_rule("nn.deformable_conv2d")
def infer_deformable_conv2d(call: Inputs) -> Type:
    call.count(3)
    attrs = call.attrs
    inner = Inputs(call.call, [call.type(0), call.known(2)])
    result = infer_conv(inner)
    weight = inner.tensor(1)
    call.types[2] = weight
    if 1 in inner.assigned:
        call.assigned[2] = weight
    layout = call.layout(attrs["data_layout"], "NCHW")
    n, _, h, w = layout.to_axes(result.shape, "NCHW")
    kernel = call.layout(attrs["kernel_layout"], "OIHW").to_axes(weight.shape, "OIHW")[2:]
    offsets: Dim = DynamicDim()
    if all(isinstance(k, int) for k in kernel):
        offsets = 2 * attrs.get_int("deformable_groups") * int(kernel[0]) * int(kernel[1])  # type: ignore[arg-type]
    call.expect(1, TensorType(layout.from_axes((n, offsets, h, w), "NCHW"), call.tensor(0).dtype))
    return result


@converter("nn.deformable_conv2d")
def convert_deformable_conv2d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    out = attrs["out_layout"] or attrs["data_layout"]
    data, offset = (_ordered(op, arg, attrs["data_layout"], "NCHW") for arg in op.args[:2])
    result = op.te(
        topi.nn.deformable_conv2d_nchw,
        data,
        offset,
        _ordered(op, op.args[2], attrs["kernel_layout"], "OIHW"),
        ints(attrs["strides"]),
        ints(attrs["padding"]),
        ints(attrs["dilation"]),
        attrs.get_int("deformable_groups"),
        attrs.get_int("groups"),
        op.result.dtype,
    )
    return _ordered(op, result, "NCHW", out)


def _ordered(op: OpCall, value: RelaxExpr, source: str, target: str) -> RelaxExpr:
    """Bring a tensor from one order of the same axes to another."""
    if sorted(source) != sorted(target):
        raise op.unsupported(f"layout {source}", f"an order of {target}")
    return op.permute(value, [source.index(axis) for axis in target])

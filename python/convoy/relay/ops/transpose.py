"""Permuting and reversing axes."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.layouts import transform
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


@builder("transpose")
def transpose(data: Expr, axes: Sequence[int] | None = None) -> Call:
    """Permute axes; None reverses their order."""
    return make_call("transpose", data, axes=axes)


@type_rule("transpose")
def infer_transpose(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    ndim = len(data.shape)
    if not call.attrs["axes"]:
        return TensorType(data.shape[::-1], data.dtype)
    axes = [call.axis(a, ndim) for a in call.ints("axes", ndim)]
    if len(set(axes)) != ndim:
        raise call.error(f"axes={axes}", "each axis once")
    return TensorType([data.shape[a] for a in axes], data.dtype)


@converter("transpose")
def convert_transpose(op: OpCall) -> RelaxExpr:
    ndim = len(op.type(0).shape)
    axes = op.attrs["axes"] or range(ndim - 1, -1, -1)
    return op.permute(op.args[0], [int(a) % ndim for a in axes])


@builder("layout_transform")
def layout_transform(data: Expr, src_layout: str, dst_layout: str) -> Call:
    """Change the layout: "NCHW" to "NCHW16c"."""
    return make_call("layout_transform", data, src_layout=src_layout, dst_layout=dst_layout)


@type_rule("layout_transform")
def infer_layout_transform(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    source, target = call.attrs["src_layout"], call.attrs["dst_layout"]
    src = call.layout(source, "")
    dst = call.layout(target, "")
    if len(src.parts) != len(data.shape):
        raise call.error(f"{data} in layout {source}", f"{len(src.parts)} dimensions")
    if sorted(src.axes) != sorted(dst.axes):
        raise call.error(f"{source} to {target}", "the same axes")
    return TensorType(dst.from_axes(src.to_axes(data.shape, src.axes), src.axes), data.dtype)


@converter("layout_transform")
def convert_layout_transform(op: OpCall) -> RelaxExpr:
    return transform(op, op.args[0], op.attrs["src_layout"], op.attrs["dst_layout"])


@builder("reverse")
def reverse(data: Expr, axis: int) -> Call:
    """Reverse the order along an axis."""
    return make_call("reverse", data, axis=axis)


@type_rule("reverse")
def infer_reverse(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@converter("reverse")
def convert_reverse(op: OpCall) -> RelaxExpr:
    return relax.op.flip(op.args[0], op.attrs.get_int("axis"))


@builder("reverse_sequence")
def reverse_sequence(data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    """Reverse the first elements of each sequence.

    Args:
        seq_lengths: How many to reverse, for each element of the batch.
        seq_axis, batch_axis: The axes of sequence and batch.
    """
    return make_call(
        "reverse_sequence", data, seq_lengths, seq_axis=seq_axis, batch_axis=batch_axis
    )


@type_rule("reverse_sequence")
def infer_reverse_sequence(call: Inputs) -> Type:
    call.count(2)
    data = call.tensor(0)
    for field in ("seq_axis", "batch_axis"):
        call.axis(int(call.attrs[field]), len(data.shape))
    return data


@converter("reverse_sequence")
def convert_reverse_sequence(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return op.te(
        topi.reverse_sequence,
        op.args[0],
        op.args[1],
        int(attrs["seq_axis"]),
        int(attrs["batch_axis"]),
    )

"""Operators of no other family."""

from __future__ import annotations

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter
from convoy.relay.convert.shape import fields_of


@converter("einsum")
def einsum(op: OpCall) -> RelaxExpr:
    return relax.op.einsum(fields_of(op, 0), op.attrs["equation"])


@converter("trilu")
def trilu(op: OpCall) -> RelaxExpr:
    return op.te(topi.trilu, op.args[0], op.args[1], op.attrs["upper"])


@converter("nn.deformable_conv2d")
def deformable_conv2d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    found = (attrs["data_layout"], attrs["kernel_layout"])
    if found != ("NCHW", "OIHW"):
        raise op.unsupported(f"layouts {found}", "NCHW and OIHW")
    return op.te(
        topi.nn.deformable_conv2d_nchw,
        *op.args,
        [int(s) for s in attrs["strides"]],
        [int(p) for p in attrs["padding"]],
        [int(d) for d in attrs["dilation"]],
        attrs.get_int("deformable_groups"),
        attrs.get_int("groups"),
        op.result.dtype,
    )

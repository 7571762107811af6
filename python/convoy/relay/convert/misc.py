"""Operators of no other family."""

from __future__ import annotations

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter, is_const
from convoy.relay.convert.shape import fields_of


@converter("einsum")
def einsum(op: OpCall) -> RelaxExpr:
    return relax.op.einsum(fields_of(op, 0), op.attrs["equation"])


@converter("trilu")
def trilu(op: OpCall) -> RelaxExpr:
    if not is_const(op.args[1]):
        raise op.unsupported("a diagonal that is computed", "a constant")
    k = int(op.args[1].value.numpy().reshape(()))
    return (relax.op.triu if op.attrs["upper"] else relax.op.tril)(op.args[0], k)


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

"""Matrix products."""

from __future__ import annotations

from tvm import relax

from convoy.relay.convert.context import OpCall, RelaxExpr, converter


@converter("nn.dense")
def dense(op: OpCall) -> RelaxExpr:
    """data times the transposed weight. A weight that is no constant keeps its transpose in the
    graph, where backends recognise it."""
    weight = op.permute(op.args[1], (1, 0))
    return relax.op.matmul(op.args[0], weight, out_dtype=op.result.dtype)


@converter("nn.matmul")
def matmul(op: OpCall) -> RelaxExpr:
    a, b = op.args
    if op.attrs["transpose_a"]:
        a = op.permute(a, (1, 0))
    if op.attrs["transpose_b"]:
        b = op.permute(b, (1, 0))
    return relax.op.matmul(a, b, out_dtype=op.result.dtype)


@converter("nn.batch_matmul")
def batch_matmul(op: OpCall) -> RelaxExpr:
    a, b = op.args
    if op.attrs["transpose_a"]:
        a = op.permute(a, (0, 2, 1))
    if op.attrs["transpose_b"]:
        b = op.permute(b, (0, 2, 1))
    b = op.meet(a, b, axes=1)
    return relax.op.matmul(a, b, out_dtype=op.result.dtype)

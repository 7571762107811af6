"""Gradients of matmuls: those with one matrix are single GEMMs over all rows."""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax import op
from tvm.relax.op._op_gradient import matmul_grad

from ..graph.expr import shape_of
from .conv_backward import conv2d_wgrad
from .gradient import rule_for


@rule_for("matmul")
def _matmul(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """TVM's rule, but for x (..., k) with a matrix (k, n): it would compute a product for each
    matrix of x, and add them up."""
    x, w = call.args
    if len(shape_of(w)) != 2 or len(shape_of(x)) < 3:
        grads: list[relax.Expr] = matmul_grad(y, call, dy, ctx)
        return grads
    (k, n), rows = shape_of(w), math.prod(shape_of(x)[:-1])
    flat = ctx.emit(op.reshape(dy, (rows, n)))
    dx = ctx.emit(op.matmul(flat, ctx.emit(op.permute_dims(w, [1, 0]))))
    # The filter gradient of a convolution over single pixels reads both as they are.
    images, height = shape_of(x)[0], rows // shape_of(x)[0]
    dy, x = (ctx.emit(op.reshape(t, (images, height, 1, -1))) for t in (dy, x))
    dw = conv2d_wgrad(dy, x, (1, 1), data_layout="NHWC", kernel_layout="OHWI")
    rotated = ctx.emit(op.reshape(ctx.emit(dw), (n, k)))
    return [op.reshape(dx, shape_of(call.args[0])), op.permute_dims(rotated, [1, 0])]

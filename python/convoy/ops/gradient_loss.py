"""The gradient of the negative log likelihood.

TVM's counts labels that are ignored among those that a mean is over, where they are negative.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..graph.expr import dtype_of, shape_of
from .gradient import rule_for


@rule_for("nn.nll_loss")
def _nll_loss(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Of each pixel the weight of its class times dy, at that class alone."""
    (scores, labels, *weights), attrs = call.args, call.attrs
    shape, dtype = shape_of(scores), dtype_of(scores)
    axis = min(1, len(shape) - 1)
    integers = dtype_of(labels)
    counts = ctx.emit(op.not_equal(labels, relax.const(int(attrs.ignore_index), integers)))
    if weights:
        known = ctx.emit(op.where(counts, labels, relax.const(0, integers)))
        flat = ctx.emit(op.reshape(known, (-1,)))
        weight = ctx.emit(op.reshape(op.take(weights[0], flat, 0), shape_of(labels)))
    else:
        weight = relax.const(1.0, dtype)
    used = ctx.emit(op.where(counts, weight, relax.const(0.0, dtype)))
    if str(attrs.reduction) == "mean":
        dy = ctx.emit(op.divide(dy, op.sum(used)))
    each = ctx.emit(op.expand_dims(op.negative(op.multiply(used, dy)), axis))
    sizes = [size if i == axis else 1 for i, size in enumerate(shape)]
    classes = relax.const(np.arange(shape[axis], dtype=integers).reshape(sizes))
    hit = ctx.emit(op.equal(classes, op.expand_dims(labels, axis)))
    dx = op.where(hit, each, relax.const(0.0, dtype))
    return [dx, *map(no_grad, (labels, *weights))]

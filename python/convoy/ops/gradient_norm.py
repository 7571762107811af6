"""Gradients of the norms that have no state: layer, group and instance norm.

With x^ = (x - mean) r, r = 1 / sqrt(var + epsilon) over the normalized axes and g = dy gamma,
dx = r (g - mean(g) - x^ mean(g x^)); dgamma and dbeta are the sums of dy x^ and dy.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, shape_of
from .gradient import rule_for
from .layer_norm_backward import layer_norm_backward


def _norm(
    ctx: relax.BlockBuilder,
    call: relax.Call,
    dy: relax.Expr,
    shape: Sequence[int],
    axes: Sequence[int],
    parameters: Sequence[int],
) -> list[relax.Expr]:
    """``shape`` is that of x with groups apart, ``axes`` are normalized in it; gamma and beta have
    its ``parameters``."""
    x, gamma, beta = call.args
    axes = list(axes)
    of_parameters = [size if i in parameters else 1 for i, size in enumerate(shape)]
    others = [i for i in range(len(shape)) if i not in parameters]

    def mean(expr: relax.Expr) -> relax.Expr:
        return op.mean(expr, axes, keepdims=True)

    def summed(expr: relax.Expr) -> relax.Expr:
        return op.reshape(op.sum(expr, others), shape_of(gamma))

    apart = ctx.emit(op.reshape(x, shape))
    g = ctx.emit(op.reshape(dy, shape))
    centred = ctx.emit(op.subtract(apart, mean(apart)))
    var = mean(op.multiply(centred, centred))
    epsilon = relax.const(float(call.attrs.epsilon), dtype_of(x))
    r = ctx.emit(op.divide(relax.const(1, dtype_of(x)), op.sqrt(op.add(var, epsilon))))
    unit = ctx.emit(op.multiply(centred, r))
    dgamma = summed(op.multiply(g, unit)) if call.attrs.scale else op.zeros_like(gamma)
    dbeta = summed(g) if call.attrs.center else op.zeros_like(beta)
    if call.attrs.scale:
        g = ctx.emit(op.multiply(g, op.reshape(gamma, of_parameters)))
    kept = op.subtract(g, mean(g))
    along = op.multiply(unit, mean(op.multiply(g, unit)))
    dx = op.multiply(r, op.subtract(kept, along))
    return [op.reshape(dx, shape_of(x)), dgamma, dbeta]


@rule_for("nn.layer_norm")
def _layer_norm(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    shape = shape_of(call.args[0])
    axes = [axis % len(shape) for axis in ints(call.attrs.axes)]
    if axes == [len(shape) - 1] and call.attrs.scale and call.attrs.center:
        return _of_rows(ctx, call, dy)
    return _norm(ctx, call, dy, shape, axes, axes)


def _of_rows(ctx: relax.BlockBuilder, call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    """The gradients of a layer norm over the last axis."""
    x, gamma, _ = call.args
    both = ctx.emit(layer_norm_backward(dy, x, gamma, call.attrs.epsilon))
    dx, mean, rstd = (ctx.emit(relax.TupleGetItem(both, i)) for i in range(3))
    if dtype_of(x) != "float32":
        mean, rstd = (ctx.emit(op.astype(value, dtype_of(x))) for value in (mean, rstd))
    unit = op.multiply(op.subtract(x, mean), rstd)
    rows = list(range(len(shape_of(x)) - 1))
    return [dx, op.sum(op.multiply(dy, unit), rows), op.sum(dy, rows)]


@rule_for("nn.instance_norm")
def _instance_norm(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    shape = shape_of(call.args[0])
    axes = [axis % len(shape) for axis in ints(call.attrs.axes)]
    return _norm(ctx, call, dy, shape, axes, [int(call.attrs.channel_axis) % len(shape)])


@rule_for("nn.group_norm")
def _group_norm(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    shape = list(shape_of(call.args[0]))
    channel, groups = int(call.attrs.channel_axis) % len(shape), int(call.attrs.num_groups)
    axes = [axis % len(shape) for axis in ints(call.attrs.axes)]
    shape[channel : channel + 1] = [groups, shape[channel] // groups]
    moved = [axis + (axis > channel) for axis in axes]
    return _norm(ctx, call, dy, shape, [channel + 1, *moved], [channel, channel + 1])

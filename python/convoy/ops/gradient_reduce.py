"""Gradients of reductions and scans that TVM has none for."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, shape_of
from .gradient import rule_for


def _axes(call: relax.Call) -> list[int]:
    rank = len(shape_of(call.args[0]))
    axes = call.attrs.axis
    return list(range(rank)) if axes is None else [axis % rank for axis in ints(axes)]


def _kept(ctx: relax.BlockBuilder, call: relax.Call, reduced: relax.Expr) -> relax.Expr:
    """A result of the reduction, with axes of size 1 for those that it reduced."""
    axes = _axes(call)
    sizes = [1 if i in axes else size for i, size in enumerate(shape_of(call.args[0]))]
    return ctx.emit(op.reshape(reduced, sizes))


@rule_for("max")
@rule_for("min")
def _extreme(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Elements that are equal to the extreme share its gradient, as in PyTorch's amax."""
    (x,) = call.args
    found = ctx.emit(op.equal(x, _kept(ctx, call, y)))
    which = ctx.emit(op.astype(found, dtype_of(dy)))
    count = ctx.emit(op.sum(which, _axes(call), keepdims=True))
    return [op.multiply(which, ctx.emit(op.divide(_kept(ctx, call, dy), count)))]


@rule_for("prod")
def _prod(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The product of the other elements: without zeros, or of all others for a single zero."""
    (x,), axes = call.args, _axes(call)
    dtype = dtype_of(x)
    zero = ctx.emit(op.equal(x, relax.const(0, dtype)))
    counted = ctx.emit(op.sum(op.astype(zero, dtype), axes, keepdims=True))
    filled = ctx.emit(op.where(zero, relax.const(1, dtype), x))
    product = ctx.emit(op.prod(filled, axes, keepdims=True))
    zeros_else = ctx.emit(op.subtract(counted, op.astype(zero, dtype)))
    none = ctx.emit(op.equal(zeros_else, relax.const(0, dtype)))
    others = ctx.emit(op.where(none, op.divide(product, filled), relax.const(0, dtype)))
    return [op.multiply(_kept(ctx, call, dy), others)]


@rule_for("std")
def _std(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """(x - mean) / (n std), with the biased standard deviation that the operator computes; zero
    where it is zero, as in PyTorch."""
    (x,), axes, zero = call.args, _axes(call), relax.const(0, dtype_of(call.args[0]))
    count = 1
    for axis in axes:
        count *= shape_of(x)[axis]
    centred = ctx.emit(op.subtract(x, op.mean(x, axes, keepdims=True)))
    std = _kept(ctx, call, y)
    many = ctx.emit(op.multiply(std, relax.const(count, dtype_of(x))))
    share = ctx.emit(op.divide(_kept(ctx, call, dy), many))
    return [op.multiply(centred, ctx.emit(op.where(op.greater(std, zero), share, zero)))]

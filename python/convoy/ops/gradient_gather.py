"""Gradients of operators that read or write elements by index, and of sorting."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..errors import UnsupportedOp
from ..graph.expr import as_numpy, dtype_of, is_const, shape_of
from .gradient import rule_for


@rule_for("take")
def _take(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The sum of the gradients of all places that an element was taken to."""
    x, indices = call.args
    shape, places = shape_of(x), shape_of(indices)
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(shape)
    taken = list(range(axis, axis + len(places)))
    rest = [i for i in range(len(shape_of(y))) if i not in taken]
    count = int(np.prod(places, dtype=int))
    rows = ctx.emit(op.permute_dims(dy, [*taken, *rest])) if axis else dy
    others = [shape_of(dy)[i] for i in rest]
    rows = ctx.emit(op.reshape(rows, [count, *others]))
    wraps = str(call.attrs.mode) == "wrap"
    if is_const(indices):
        index = as_numpy(indices).reshape(-1).astype("int64")
        index = index % shape[axis] if wraps else index.clip(0, shape[axis] - 1)
        dx = _gathered(ctx, rows, index, shape[axis])
    else:
        index = ctx.emit(op.reshape(op.astype(indices, "int64"), [count, 1]))
        size = relax.const(shape[axis], "int64")
        if wraps:
            index = ctx.emit(op.floor_mod(index, size))
        else:
            index = ctx.emit(op.maximum(index, relax.const(0, "int64")))
            index = ctx.emit(op.minimum(index, op.subtract(size, relax.const(1, "int64"))))
        zeros = ctx.emit(op.zeros((shape[axis], *others), dtype_of(dy)))
        dx = ctx.emit(op.scatter_nd(zeros, index, rows, "add"))
    if axis:
        dx = op.permute_dims(dx, [*range(1, axis + 1), 0, *range(axis + 1, len(shape))])
    return [dx, no_grad(indices)]


def _gathered(
    ctx: relax.BlockBuilder, rows: relax.Expr, index: np.ndarray, size: int
) -> relax.Expr:
    """(size, ...): sums of the rows whose index is known, by gathering them. Row ``len(index)`` is
    zero, and stands where an element was taken less often than another."""
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index, minlength=size)
    most = max(1, int(counts.max(initial=0)))
    starts = np.cumsum(counts) - counts
    slots = np.arange(most)[:, None]
    at = np.minimum(starts + slots, max(0, len(index) - 1))
    places = np.where(slots < counts, order[at] if len(order) else 0, len(index))
    if (counts < most).any():
        widths = [0, 1] + [0] * (2 * len(shape_of(rows)) - 2)
        rows = ctx.emit(op.nn.pad(rows, widths))
    found = ctx.emit(op.take(rows, relax.const(places, "int64"), axis=0, mode="clip"))
    return ctx.emit(op.sum(found, [0]) if most > 1 else op.squeeze(found, [0]))


@rule_for("gather_elements")
def _gather_elements(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, indices = call.args
    zeros = ctx.emit(op.zeros(shape_of(x), dtype_of(dy)))
    axis = int(call.attrs.axis)
    return [op.scatter_elements(zeros, indices, dy, axis, "add"), no_grad(indices)]


@rule_for("gather_nd")
def _gather_nd(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, indices = call.args
    if int(call.attrs.batch_dims):
        raise UnsupportedOp("the gradient of gather_nd with batch_dims", "batch_dims=0")
    zeros = ctx.emit(op.zeros(shape_of(x), dtype_of(dy)))
    return [op.scatter_nd(zeros, indices, dy, "add"), no_grad(indices)]


@rule_for("scatter_elements")
def _scatter_elements(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    _, indices, updates = call.args
    axis, kept = int(call.attrs.axis), dy
    if _replaces(call):
        zeros = ctx.emit(op.zeros_like(updates))
        kept = ctx.emit(op.scatter_elements(dy, indices, zeros, axis))
    return [kept, no_grad(indices), op.gather_elements(dy, indices, axis)]


@rule_for("scatter_nd")
def _scatter_nd(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    _, indices, updates = call.args
    kept = dy
    if _replaces(call):
        kept = ctx.emit(op.scatter_nd(dy, indices, ctx.emit(op.zeros_like(updates))))
    return [kept, no_grad(indices), op.gather_nd(dy, indices)]


def _replaces(call: relax.Call) -> bool:
    """Return whether updates replace what they are written to, rather than being added to it."""
    reduction = str(call.attrs.reduction)
    if reduction not in ("update", "add"):
        raise UnsupportedOp(f"the gradient of a scatter with {reduction!r}", "update or add")
    return reduction == "update"


@rule_for("slice_scatter")
def _slice_scatter(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    _, updates, begin, end, step = call.args
    zeros = ctx.emit(op.zeros_like(updates))
    kept = relax.Call(call.op, [dy, zeros, begin, end, step], call.attrs)
    bounds = ([bound.value] for bound in (begin, end, step))
    part = op.strided_slice(dy, [int(call.attrs.axis)], *bounds)
    return [kept, part, *(no_grad(bound) for bound in (begin, end, step))]


@rule_for("sort")
def _sort(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    (x,), attrs = call.args, call.attrs
    axis = int(attrs.axis) % len(shape_of(x))
    order = ctx.emit(op.argsort(x, axis, bool(attrs.descending), "int64"))
    return [_put_back(ctx, x, order, dy, axis)]


@rule_for("topk")
def _topk(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    (x,), attrs = call.args, call.attrs
    if str(attrs.ret_type) != "both":
        raise UnsupportedOp("the gradient of topk of values alone", "values and indices")
    indices = ctx.emit(relax.TupleGetItem(y, 1))
    of_values = ctx.emit(relax.TupleGetItem(dy, 0))
    return [_put_back(ctx, x, indices, of_values, int(attrs.axis) % len(shape_of(x)))]


def _put_back(
    ctx: relax.BlockBuilder, x: relax.Expr, indices: relax.Expr, dy: relax.Expr, axis: int
) -> relax.Expr:
    zeros = ctx.emit(op.zeros(shape_of(x), dtype_of(dy)))
    return op.scatter_elements(zeros, indices, dy, axis)


@rule_for("flip")
def _flip(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [op.flip(dy, int(call.attrs.axis))]


@rule_for("tril")
@rule_for("triu")
def _triangle(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [relax.Call(call.op, [dy, *call.args[1:]], call.attrs), *map(no_grad, call.args[1:])]

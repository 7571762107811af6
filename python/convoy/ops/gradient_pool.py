"""Gradients of pooling over one and three axes, and of adaptive means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, ints, shape_of
from .gradient import ordered, rule_for
from .pool_backward import avg_pool2d_backward, max_pool2d_backward


def apply_along(
    ctx: relax.BlockBuilder, expr: relax.Expr, axis: int, matrix: np.ndarray
) -> relax.Expr:
    """Multiply an axis by a matrix (old size, new size)."""
    rank = len(shape_of(expr))
    order = [*(i for i in range(rank) if i != axis), axis]
    last = axis == rank - 1
    moved = expr if last else ctx.emit(op.permute_dims(expr, order))
    made = ctx.emit(op.matmul(moved, relax.const(matrix.astype(dtype_of(expr)))))
    return made if last else ctx.emit(op.permute_dims(made, [order.index(i) for i in range(rank)]))


@rule_for("nn.adaptive_avg_pool1d")
@rule_for("nn.adaptive_avg_pool2d")
@rule_for("nn.adaptive_avg_pool3d")
def _adaptive_avg_pool(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Each window's gradient spread over its elements; windows of several sizes by matrices."""
    layout, x = str(call.attrs.layout), call.args[0]
    dy = ctx.normalize(ordered(dy, str(call.attrs.out_layout or layout), layout))
    axes = [layout.index(letter) for letter in layout if letter in "DHW"]
    sizes = [(shape_of(x)[axis], shape_of(dy)[axis]) for axis in axes]
    if len(axes) == 2 and not any(size % parts for size, parts in sizes):
        window = [size // parts for size, parts in sizes]
        return [avg_pool2d_backward(dy, x, window, window, layout=layout)]
    for axis, (size, parts) in zip(axes, sizes, strict=True):
        dy = apply_along(ctx, dy, axis, _shares(size, parts))
    return [dy]


def _shares(size: int, parts: int) -> np.ndarray:
    """(parts, size): the share of each element in each mean."""
    first = np.arange(parts) * size // parts
    behind = -(-(np.arange(parts) + 1) * size // parts)
    at = np.arange(size)
    inside = (at >= first[:, None]) & (at < behind[:, None])
    return inside / inside.sum(1, keepdims=True)


@rule_for("nn.avg_pool1d")
@rule_for("nn.avg_pool3d")
def _avg_pool(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    attrs, layout, x = call.attrs, str(call.attrs.layout), call.args[0]
    dy = ctx.normalize(ordered(dy, str(attrs.out_layout or layout), layout))
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    window, strides, dilation, before, behind = _windows(attrs, len(axes))
    if any(step != 1 for step in dilation):
        raise UnsupportedOp("the gradient of a dilated average pool", "dilation 1")
    for i, axis in enumerate(axes):
        size, parts = shape_of(x)[axis], shape_of(dy)[axis]
        first = np.arange(parts)[:, None] * strides[i] - before[i]
        at, last = np.arange(size), first + window[i]
        ends = (-before[i], size + behind[i]) if attrs.count_include_pad else (0, size)
        counts = np.minimum(last, ends[1]) - np.maximum(first, ends[0])
        dy = apply_along(ctx, dy, axis, ((at >= first) & (at < last)) / counts)
    return [dy]


@rule_for("nn.max_pool1d")
@rule_for("nn.max_pool3d")
def _max_pool(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """A pool over planes, and one over what they give: the first maximum of all is the first one of
    the first plane that has it."""
    attrs, (x,) = call.attrs, call.args
    layout = str(attrs.layout)
    plain = "NC" + "".join(letter for letter in "DHW" if letter in layout)
    dy = ctx.normalize(ordered(dy, str(attrs.out_layout or layout), layout))
    x, dy = (ctx.emit(ordered(expr, layout, plain)) for expr in (x, dy))
    (n, c), sizes, parts = shape_of(x)[:2], shape_of(x)[2:], shape_of(dy)[2:]
    windows = list(zip(*_windows(attrs, len(sizes)), strict=True))
    depth = math.prod(sizes[:-2])
    rows, columns = (1, *sizes)[-2:]
    planes = ctx.emit(op.reshape(x, (n, c * depth, rows, columns)))
    within = _Pool([(1, 1, 1, 0, 0), *windows][-2:], (1, *parts)[-2:])
    if len(sizes) == 1:
        inner = ctx.emit(op.reshape(dy, (n, c, *within.parts)))
    else:
        across = _Pool([windows[0], (1, 1, 1, 0, 0)], (parts[0], math.prod(parts[1:])))
        pooled = within.forward(ctx, planes)
        pooled = ctx.emit(op.reshape(pooled, (n, c, depth, math.prod(parts[1:]))))
        inner = ctx.emit(op.reshape(dy, (n, c, *across.parts)))
        inner = across.backward(ctx, inner, pooled, across.forward(ctx, pooled))
        inner = ctx.emit(op.reshape(inner, (n, c * depth, *within.parts)))
    dx = within.backward(ctx, inner, planes, within.forward(ctx, planes))
    return [ordered(ctx.emit(op.reshape(dx, shape_of(x))), plain, layout)]


class _Pool:
    """A max pool of (n, c, h, w): by axis (window, stride, dilation, padding before and behind)
    and how many windows there are."""

    def __init__(self, axes: Sequence[Sequence[int]], parts: Sequence[int]) -> None:
        window, strides, dilation, before, behind = zip(*axes, strict=True)
        self.parts = tuple(parts)
        self._window, self._strides, self._dilation = window, strides, dilation
        self._padding = (*before, *behind)

    def forward(self, ctx: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = op.nn.max_pool2d(x, self._window, self._strides, self._padding, self._dilation, True)
        axes = range(2, 4)  # rounded up, and cut where the pool was rounded down
        return ctx.emit(op.strided_slice(ctx.emit(y), list(axes), [0, 0], list(self.parts)))

    def backward(
        self, ctx: relax.BlockBuilder, dy: relax.Expr, x: relax.Expr, y: relax.Expr
    ) -> relax.Expr:
        options = (self._window, self._strides, self._padding, self._dilation, "NCHW")
        return ctx.emit(max_pool2d_backward(dy, x, y, *options))


def _windows(attrs: tvm.ir.Attrs, rank: int) -> list[tuple[int, ...]]:
    """Window, stride, dilation, padding before and behind, each of ``rank`` numbers."""
    whole = (attrs.pool_size, attrs.strides, attrs.dilation)
    padding = ints(attrs.padding)
    padding *= 2 * rank // len(padding)
    return [*(ints(v) * (rank // len(ints(v))) for v in whole), padding[:rank], padding[rank:]]

"""Sums of so many elements that one kernel cannot keep a GPU busy: sums of parts, then of those.

Losses are sums of all elements, gradients of biases and scales sums over all rows.
"""

from __future__ import annotations

import math

from tvm import relax

from ..graph.expr import FLOAT_DTYPES, dtype_of, ints, shape_of
from ..graph.target import on_gpu
from .default import default_legalize

_LONG = 1 << 14  # elements of a sum
_SHORT = 16  # and of a part at least
_FEWEST_PARTS, _MOST_PARTS = 32, 4096


def sum_in_parts(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sums over all axes, and over all but the last, on GPUs."""
    (x,), shape = call.args, shape_of(call.args[0])
    rank = len(shape)
    axes = list(range(rank)) if call.attrs.axis is None else ints(call.attrs.axis)
    axes = sorted(axis % rank for axis in axes)
    rows = rank > 0 and axes == list(range(rank - 1)) and shape[-1] >= 8
    count = math.prod(shape[axis] for axis in axes)
    long = count > _LONG and dtype_of(x) in FLOAT_DTYPES and on_gpu()
    if not long or not (rows or len(axes) == rank):
        return default_legalize(builder, call)
    apart, kept = _apart(builder, x, axes)
    behind = list(range(kept, len(shape_of(apart)) - (1 if rows else 0)))
    sums = builder.emit(relax.op.sum(_cast(builder, apart, "float32"), behind))
    total = _cast(builder, builder.emit(relax.op.sum(sums, list(range(kept)))), dtype_of(x))
    return total if shape_of(total) == shape_of(call) else relax.op.reshape(total, shape_of(call))


def _cast(builder: relax.BlockBuilder, x: relax.Expr, dtype: str) -> relax.Expr:
    return x if dtype_of(x) == dtype else builder.emit(relax.op.astype(x, dtype))


def _apart(builder: relax.BlockBuilder, x: relax.Expr, axes: list[int]) -> tuple[relax.Expr, int]:
    """``x``, and how many of its first axes number the parts. Where none do, its summed axes become
    two; what computes ``x`` is then no longer computed with the sum."""
    shape = shape_of(x)
    fits = [
        kept
        for kept in range(1, len(axes))
        if _FEWEST_PARTS <= math.prod(shape[:kept]) <= _MOST_PARTS
        and math.prod(shape[kept : len(axes)]) >= _SHORT
    ]
    if fits:  # a single sum has but one block for each part
        return x, fits[-1 if len(axes) == len(shape) else 0]
    count = math.prod(shape[: len(axes)])
    root = min(math.isqrt(count), _MOST_PARTS)
    parts, rest = max(n for n in range(1, root + 1) if count % n == 0), shape[len(axes) :]
    if 2 * parts < root:  # a count of few or large factors: zeros make it a multiple
        parts, extra = root, -count % root
        rows = builder.emit(relax.op.reshape(x, [count, *rest]))
        x = builder.emit(relax.op.nn.pad(rows, [0, extra, *(0,) * (2 * len(rest))]))
        count += extra
    return builder.emit(relax.op.reshape(x, [parts, count // parts, *rest])), 1

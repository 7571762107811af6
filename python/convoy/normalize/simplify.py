"""Reduce the set of operators: canonicalize synonyms and remove no-ops.

After this pass a squeeze, flatten or expand_dims is a reshape, a global average pool is a mean,
relu6 is a clip, chains of reshapes or permutations are one, and constant indices are nonnegative.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    number,
    op_name,
    permutation_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from .views import reshaped_before


class Simplify(Rewriter):
    """Apply the rule of each operator."""

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        rule = _RULES.get(op_name(call))
        return rule(self, call) if rule else None


def _reshape(p: Simplify, call: relax.Call) -> relax.Expr:
    source, shape = call.args[0], shape_of(call)
    while (inner := p.producer(source, "relax.reshape")) is not None:
        source = inner.args[0]
    inner = p.producer(source, "relax.permute_dims")
    if inner is not None and _moves_only_ones(inner):
        source = inner.args[0]
        while (outer := p.producer(source, "relax.reshape")) is not None:
            source = outer.args[0]
    if shape_of(source) == shape:
        return source
    return relax.op.reshape(source, shape)


def _moves_only_ones(call: relax.Call) -> bool:
    """A permutation that keeps the order of elements because it moves dimensions of size 1."""
    shape = shape_of(call.args[0])
    moved = [a for a in permutation_of(call) if shape[a] != 1]
    return moved == sorted(moved)


def _permute(p: Simplify, call: relax.Call) -> relax.Expr | None:
    axes, source = permutation_of(call), call.args[0]
    while (inner := _permuted(p, source)) is not None:
        source, before = inner
        axes = tuple(before[a] for a in axes)
    if axes == tuple(range(len(axes))):
        return source
    new = p.builder.normalize(relax.op.permute_dims(source, list(axes)))
    if _moves_only_ones(new):
        return _reshape(p, p.builder.normalize(relax.op.reshape(source, shape_of(new))))
    return new


def _permuted(p: Simplify, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
    """(x, axes) of a permutation, also of one that is reshaped behind it: images made of tokens,
    and tokens of images."""
    view = p.producer(expr, "relax.reshape")
    made = p.producer(view.args[0] if view is not None else expr, "relax.permute_dims")
    if made is None:
        return None
    axes = permutation_of(made)
    if view is None:
        return made.args[0], axes
    moved = reshaped_before(shape_of(made.args[0]), axes, shape_of(view))
    return (p.reshaped(made.args[0], moved[0]), moved[1]) if moved is not None else None


def _slice(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """A slice of all of a value as the value. A slice of permuted axes as the permutation of a
    slice: parts of one value, such as queries, keys and values, are then cut out where they lie,
    and the whole is not copied."""
    if not all(isinstance(bound, relax.Tuple) for bound in call.args[1:]):
        return None
    forward = all(int(step) > 0 for steps in call.args[4:] for step in steps.fields)
    if forward and shape_of(call) == shape_of(call.args[0]):
        return call.args[0]
    inner = p.producer(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    before = permutation_of(inner)
    axes = [before[int(axis)] for axis in call.args[1].fields]
    bounds = [list(bound.fields) for bound in call.args[2:]]
    part = p.emit(relax.op.strided_slice(inner.args[0], axes, *bounds))
    return relax.op.permute_dims(part, list(before))


def _split(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """A split into one part, which is no tuple."""
    return call.args[0] if isinstance(call.ty, relax.TensorType) else None


def _astype(p: Simplify, call: relax.Call) -> relax.Expr | None:
    return call.args[0] if dtype_of(call.args[0]) == dtype_of(call) else None


def _clip6(p: Simplify, call: relax.Call) -> relax.Expr:
    return relax.op.clip(call.args[0], 0.0, 6.0)


def _clip(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """Merge nested clips, of which a relu is one. A clip with only one bound becomes a maximum or
    minimum; one with the lower bound zero becomes a relu."""
    x, (low, high) = call.args[0], (float(number(bound)) for bound in call.args[1:3])
    for name in ("relax.clip", "relax.nn.relu"):
        inner = p.producer(x, name)
        if inner is not None:
            x, *bounds = inner.args
            before, after = map(number, bounds) if bounds else (0.0, math.inf)
            low, high = max(min(before, high), low), min(max(after, low), high)
    if math.isfinite(low) and math.isfinite(high):
        return None if x.same_as(call.args[0]) else relax.op.clip(x, low, high)
    if low == -math.inf and high == math.inf:
        return x
    if high == math.inf and low == 0:
        return relax.op.nn.relu(x)
    function, bound = (relax.op.maximum, low) if high == math.inf else (relax.op.minimum, high)
    return function(x, relax.const(bound, dtype_of(x)))


def _bound(call: relax.Call) -> tuple[relax.Expr, float] | None:
    """(x, constant) of a maximum or minimum with one number."""
    for x, bound in (call.args, reversed(call.args)):
        if not is_const(bound) or dtype_of(x) not in FLOAT_DTYPES or shape_of(x) != shape_of(call):
            continue
        if as_numpy(bound).size == 1:
            return x, float(as_numpy(bound).item())
    return None


def _maximum(p: Simplify, call: relax.Call) -> relax.Expr | None:
    found = _bound(call)
    if found is None:
        return None
    if found[1] == -math.inf:
        return found[0]
    return relax.op.nn.relu(found[0]) if found[1] == 0.0 else None


def _minimum(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """``min(max(x, low), high)``, as clips are written out, is a clip."""
    found = _bound(call)
    if found is None:
        return None
    x, high = found
    if high == math.inf:
        return x
    relu = p.producer(x, "relax.nn.relu")
    if relu is not None:
        return relax.op.clip(relu.args[0], 0.0, high) if high >= 0 else None
    lower = p.producer(x, "relax.maximum")
    inner = _bound(lower) if lower is not None else None
    if inner is None or inner[1] > high:
        return None
    return relax.op.clip(inner[0], inner[1], high)


def _spatial(call: relax.Call) -> list[int]:
    """Spatial axes of a pool's data; none where channels are packed."""
    layout = str(call.attrs.layout)
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    return axes if len(layout) == len(axes) + 2 else []


def _adaptive_pool(p: Simplify, call: relax.Call) -> relax.Expr | None:
    size, axes = call.attrs.output_size, _spatial(call)
    if not axes or size is None or set(ints(size)) != {1}:
        return None
    return relax.op.mean(call.args[0], axes, keepdims=True)


def _average_pool(p: Simplify, call: relax.Call) -> relax.Expr | None:
    axes, shape = _spatial(call), shape_of(call.args[0])
    padded = any(ints(call.attrs.padding)) or {*ints(call.attrs.dilation)} != {1}
    window = tuple(shape[axis] for axis in axes)
    if not axes or padded or ints(call.attrs.pool_size) != window:
        return None
    return relax.op.mean(call.args[0], axes, keepdims=True)


def _reduction(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """A reduction of one element is that element, here without a kernel. Those that are made
    later, of variances and pools, are :mod:`convoy.tir.unit_reductions`."""
    x, shape = call.args[0], shape_of(call)
    if math.prod(shape_of(x)) != math.prod(shape) or dtype_of(call) != dtype_of(x):
        return None
    return _reshape(p, p.builder.normalize(relax.op.reshape(x, shape)))


def _dropout(p: Simplify, call: relax.Call) -> relax.Expr:
    return relax.Tuple([call.args[0], p.emit(relax.op.ones_like(call.args[0]))])


def _collapse(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """The gradient of a broadcast: a sum over the axes that were spread."""
    source, shape = shape_of(call.args[0]), shape_of(call)
    spread = len(source) - len(shape)
    aligned = (1,) * spread + shape
    axes = [i for i, (a, b) in enumerate(zip(source, aligned, strict=True)) if a != b]
    if not axes:
        return relax.op.reshape(call.args[0], shape)
    total = p.emit(relax.op.sum(call.args[0], axes, keepdims=True))
    return total if not spread else relax.op.reshape(total, shape)


def _same_shape(p: Simplify, call: relax.Call) -> relax.Expr | None:
    return call.args[0] if shape_of(call.args[0]) == shape_of(call) else None


def _concat(p: Simplify, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    return fields[0] if len(fields) == 1 else None


def _pad(p: Simplify, call: relax.Call) -> relax.Expr | None:
    return None if any(ints(call.attrs.pad_width)) else call.args[0]


def _take(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """Count negative constant indices from the end, as importers that leave them mean them."""
    x, indices = call.args
    if not is_const(indices) or call.attrs.axis is None or str(call.attrs.mode) != "fast":
        return None
    places = as_numpy(indices).astype("int64")  # the narrow type of indices may not hold the size
    size = shape_of(x)[int(call.attrs.axis)]
    if not places.size or not -size <= places.min() < 0:
        return None
    return call_like(call, [x, make_const(np.where(places < 0, places + size, places))])


def _matmul(p: Simplify, call: relax.Call) -> relax.Expr | None:
    """(N, 1, C) x (C, K) and the like, as importers make it of a dense layer, as a 2-d GEMM."""
    a, b = call.args[0], _matrix(p, call.args[1])
    shape = shape_of(a)
    if len(shape) <= 2 or b is None or shape_of(call)[:-1] != shape[:-1] or 0 in shape:
        return None  # a size of 0 of reshape() stands for that of its input
    flat = p.emit(relax.op.reshape(a, (math.prod(shape[:-1]), shape[-1])))
    product = p.emit(relax.op.matmul(flat, b, call.attrs.out_dtype))
    return relax.op.reshape(product, shape_of(call))


def _matrix(p: Simplify, operand: relax.Expr) -> relax.Expr | None:
    """The matrix that an operand is, or that it repeats over the batch: so PyTorch writes a linear
    layer over inputs that are not contiguous."""
    if rank_of(operand) <= 2:
        return operand if rank_of(operand) == 2 else None
    if is_const(operand):
        matrices = as_numpy(operand).reshape(-1, *shape_of(operand)[-2:])
        return make_const(matrices[0]) if (matrices == matrices[:1]).all() else None
    shape, repeated = shape_of(operand)[-2:], operand
    while (made := p.producer(repeated, "relax.reshape")) is not None:
        repeated = made.args[0]
        if shape_of(repeated)[-2:] != shape:
            return None
    made = p.producer(repeated, "relax.broadcast_to")
    if made is None:
        return None
    source = made.args[0]
    *batch, rows, columns = (1, 1, *shape_of(source))
    if math.prod(batch) != 1 or (rows, columns) != shape:
        return None
    return source if rank_of(source) == 2 else p.emit(relax.op.reshape(source, (rows, columns)))


_RULES: dict[str, Callable[[Simplify, relax.Call], relax.Expr | None]] = {
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.nn.batch_flatten": _reshape,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _slice,
    "relax.split": _split,
    "relax.astype": _astype,
    "relax.nn.relu6": _clip6,
    "relax.clip": _clip,
    "relax.maximum": _maximum,
    "relax.minimum": _minimum,
    "relax.nn.adaptive_avg_pool2d": _adaptive_pool,
    "relax.nn.adaptive_avg_pool3d": _adaptive_pool,
    "relax.nn.avg_pool2d": _average_pool,
    "relax.nn.avg_pool3d": _average_pool,
    **dict.fromkeys(relax_ops("mean sum max min prod"), _reduction),
    "relax.nn.dropout": _dropout,
    "relax.broadcast_to": _same_shape,
    "relax.collapse_sum_to": _collapse,
    "relax.collapse_sum_like": _collapse,
    "relax.concat": _concat,
    "relax.nn.pad": _pad,
    "relax.take": _take,
    "relax.matmul": _matmul,
}

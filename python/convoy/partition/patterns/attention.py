"""Attention: two batched matmuls with a softmax between them, as one workload.

Operands are views (:mod:`.strided`) as far back as that goes, so that the slices, reshapes and
permutations between the GEMMs and the attention need not be run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...graph.expr import dtype_of, op_name, rank_of, shape_of
from ...ir.attention import Attention, RowView
from ...ir.dtypes import FLOAT_DTYPES
from ...ir.workload import Workload
from .attention_bias import Masks, combined
from .base import GraphView, Pattern, Site, typed
from .softmax_chain import Weights, weights_of
from .sources import Source, destinations, sources
from .strided import Factors, Strided, common, joined

#: Elements that a kernel reads at a time: where a view's rows start elsewhere, it is copied.
_VECTOR = 8


@dataclass(frozen=True)
class _Operand:
    """A source as rows: over the batch dimensions of its matmul, then along the rows."""

    source: Source
    batch: Factors
    row_stride: int

    @property
    def is_aligned(self) -> bool:
        numbers = [self.source.layout.offset, self.row_stride, *(s for _, s in self.batch)]
        return all(number % _VECTOR == 0 for number in numbers)


class AttentionPattern(Pattern):
    """``softmax(scale * q k^T + bias) v`` with any views of its operands and result."""

    name = "attention"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            call = binding.value
            if op_name(call) != "relax.matmul" or rank_of(binding.var) < 2:
                continue
            weights = weights_of(graph, call.args[0])
            if weights is not None and (site := _site(graph, binding.var, weights)) is not None:
                yield site


def _site(graph: GraphView, end: relax.Var, weights: Weights) -> Site | None:
    first, second = weights.scores.matmul, graph.value[end]
    (q, k), v = first.args, second.args[1]
    dtype = dtype_of(q)
    same = {dtype_of(operand) for operand in (q, k, v, end)} == {dtype}
    if dtype not in FLOAT_DTYPES or not same or min(map(rank_of, (q, k, v))) < 2:
        return None
    masks = combined(weights.scores.terms, dtype)
    if masks is None:
        return None
    scores, result = shape_of(weights.scores.covered[0]), shape_of(end)
    if math.prod(scores[:-2]) != math.prod(result[:-2]):
        return None
    rows: list[list[_Operand]] = [
        _rows(_queries(graph, q, weights.scores.factor), scores[:-2], False),
        _rows([*sources(graph, k, scaled=True), *_transposed(k)], scores[:-2], True),
        _rows(sources(graph, v), result[:-2], False),
        _rows(destinations(graph, end), result[:-2], False),
    ]
    if not all(rows):
        return None
    for attempt in range(max(map(len, rows))):
        chosen = [options[min(attempt, len(options) - 1)] for options in rows]
        if (site := _joined(graph, end, weights, masks, chosen)) is not None:
            return site
    return None


def _queries(graph: GraphView, q: relax.Expr, factor: relax.Expr | None) -> list[Source]:
    """Views that the queries are; where the scores have a factor for each row, scaled by it."""
    if factor is None:
        return sources(graph, q, scaled=True)
    return [Source(relax.op.multiply(q, factor), Strided.compact(shape_of(q)))]


def _transposed(k: relax.Expr) -> list[Source]:
    """Keys whose elements are not contiguous, as a contiguous copy."""
    shape, last = shape_of(k), rank_of(k) - 1
    axes = [*range(last - 1), last, last - 1]
    layout = Strided.compact([shape[axis] for axis in axes]).permuted(axes)
    return [Source(relax.op.permute_dims(k, axes), layout)]


def _rows(found: Sequence[Source], batch: tuple[int, ...], transposed: bool) -> list[_Operand]:
    """Sources that are evenly spaced rows of contiguous elements; only aligned ones if there are
    any."""
    result = []
    for source in found:
        layout = source.layout.spread((*batch, *source.layout.shape[-2:]))
        rows, columns = layout.dims[-2:][::-1] if transposed else layout.dims[-2:]
        rows, columns = joined(rows), joined(columns)
        if len(rows) > 1 or len(columns) > 1 or columns[0][1] != (columns[0][0] > 1):
            continue
        flat = tuple(factor for factors in layout.dims[:-2] for factor in factors)
        result.append(_Operand(source, flat, rows[0][1]))
    return [operand for operand in result if operand.is_aligned] or result


def _joined(
    graph: GraphView, end: relax.Var, weights: Weights, masks: Masks, chosen: Sequence[_Operand]
) -> Site | None:
    """Return the site of these operands, if their batches have a form in common."""
    lists = [operand.batch for operand in chosen]
    offsets = [operand.source.layout.offset for operand in chosen]
    steps = [operand.row_stride for operand in chosen]
    if masks.bias is not None:
        dims = masks.bias.layout.dims
        lists.append(tuple(factor for factors in dims[:-2] for factor in factors))
        offsets.append(0)
        steps.append(joined(dims[-2])[0][1])
    shared = common(lists)
    if shared is None or len(shared) > 3:
        return None
    padded = [(1, (0,) * len(lists))] * (3 - len(shared)) + shared
    (outer, by_outer), (batch, by_batch), (heads, by_head) = padded
    q, k, v, o = (operand.source for operand in chosen)
    shapes = [shape_of(typed(source.tensor)) for source in (q, k, v, o)]
    if masks.bias is not None:
        shapes.append(masks.bias.shape)
    strides = zip(by_outer, by_batch, by_head, steps, strict=True)
    views = [RowView(*view) for view in zip(shapes, offsets, strides, strict=True)]
    queries, keys = shape_of(weights.scores.covered[0])[-2:]
    dim, value_dim = shape_of(weights.scores.matmul.args[0])[-1], shape_of(end)[-1]
    dtype = dtype_of(end)
    q_view, k_view, v_view, o_view, bias, *_ = [*views, RowView()]
    attention = Attention(
        q_view,
        k_view,
        v_view,
        o_view,
        bias,
        bias_dtype=masks.bias.dtype if masks.bias else dtype,
        scale=_float32(weights.scores.scale * q.factor * k.factor),
        causal=masks.causal,
        zeros=weights.zeros,
        outer=outer,
    )
    workload = Workload(
        "attention", outer * batch, queries, keys, heads * dim, heads * value_dim, 1, 1,
        groups=heads, dtype=dtype, out_dtype=dtype, attention=attention,
    )  # fmt: skip
    inputs = [q.tensor, k.tensor, v.tensor]
    if masks.bias is not None:
        inputs.append(masks.bias.tensor)
    target = o.tensor
    core = [*weights.covered, end, *o.covered, target]
    covered = _covered(graph, core, [*q.covered, *k.covered, *v.covered])
    return Site(covered, (target,), workload, tuple(inputs))


def _float32(value: float) -> float:
    """Rounded, so that equal networks have equal workloads however they write a scale."""
    return float(f"{np.float32(value):.7g}")


def _covered(
    graph: GraphView, core: Sequence[relax.Var], views: Sequence[relax.Var]
) -> tuple[relax.Var, ...]:
    """Return the chain, and of the views before it those that nothing else reads."""
    inside = dict.fromkeys(core)
    waiting = sorted(set(views) - inside.keys(), key=graph.position.__getitem__, reverse=True)
    for var in waiting:  # readers first
        if var not in graph.returned and all(reader in inside for reader in graph.readers[var]):
            inside[var] = None
    return tuple(inside)

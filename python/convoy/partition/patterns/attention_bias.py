"""Combine all terms that are added to the scores of an attention into one tensor."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...graph.expr import make_const
from ...ir.dtypes import numpy_dtype
from .scores import Term
from .strided import Strided


@dataclass(frozen=True)
class Bias:
    """The tensor, and its layout over the scores: batch dimensions, queries, keys."""

    tensor: relax.Expr
    shape: tuple[int, ...]
    dtype: str
    layout: Strided


@dataclass(frozen=True)
class Masks:
    """All terms of an attention: a causal mask, a bias, both or neither."""

    causal: bool = False
    bias: Bias | None = None


def combined(terms: Sequence[Term], dtype: str) -> Masks | None:
    """Return one bias for all terms; None if it has no effect, as for constants of entire rows."""
    if not terms:
        return Masks()
    extents = _batches([term.scores[:-2] for term in terms])
    if extents is None:
        return None
    if all(isinstance(term.value, np.ndarray) for term in terms):
        return _of_constants(terms, extents, dtype)
    kept = "float32" if any(term.dtype != dtype for term in terms) else dtype
    shapes = [_cut(term.shape, term.scores, extents) for term in terms]
    values = [_expression(*pair, kept) for pair in zip(terms, shapes, strict=True)]
    shape = tuple(map(int, np.broadcast_shapes(*shapes)))
    if shape[-1] != terms[0].scores[-1]:
        return None  # the same for all keys, which is no bias at all
    layout = Strided.compact(shape).spread((*extents, *terms[0].scores[-2:]))
    return Masks(bias=Bias(functools.reduce(relax.op.add, values), shape, kept, layout))


def _expression(term: Term, shape: tuple[int, ...], dtype: str) -> relax.Expr:
    if isinstance(term.value, np.ndarray):
        return make_const(term.value.reshape(shape), dtype)
    value = term.value if term.dtype == dtype else relax.op.astype(term.value, dtype)
    return value if term.shape == shape else relax.op.reshape(value, shape)


def _of_constants(terms: Sequence[Term], extents: Sequence[int], dtype: str) -> Masks:
    rows, keys = terms[0].scores[-2:]
    total = np.zeros((1,) * (len(extents) + 2), np.float32)
    for term in terms:
        value = np.asarray(term.value, np.float32)
        total = total + value.reshape(_cut(value.shape, term.scores, extents))
    if not total.any():
        return Masks()
    if _is_causal(total, (rows, keys)):
        return Masks(causal=True)
    total = np.broadcast_to(total, (*total.shape[:-1], keys))
    narrow = total.astype(numpy_dtype(dtype))
    # A finite number that would become minus infinity stays as it is.
    fits = bool(np.array_equal(np.isinf(narrow.astype(np.float32)), np.isinf(total)))
    kept = dtype if fits and all(term.dtype == dtype for term in terms) else "float32"
    value = narrow if kept == dtype else np.asarray(total)
    layout = Strided.compact(value.shape).spread((*extents, rows, keys))
    return Masks(bias=Bias(make_const(value), value.shape, kept, layout))


def _batches(shapes: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Extents into which the batch dimensions of all shapes can be cut."""
    ends = {math.prod(shape[i:]) for shape in shapes for i in range(len(shape) + 1)}
    ordered = sorted(ends)
    if any(b % a for a, b in itertools.pairwise(ordered)):
        return None
    if len({math.prod(shape) for shape in shapes}) > 1:
        return None
    return [b // a for a, b in itertools.pairwise(ordered)][::-1]


def _cut(
    shape: tuple[int, ...], scores: tuple[int, ...], extents: Sequence[int]
) -> tuple[int, ...]:
    """Return a term's shape with its batch dimensions cut into ``extents``; 1 where it is
    broadcast."""
    aligned = (1,) * (len(scores) - len(shape)) + shape
    found: list[int] = []
    left = list(extents)
    for extent, own in zip(scores[:-2], aligned[:-2], strict=True):
        reached = 1
        while reached < extent:
            reached *= left[0]
            found.append(left[0] if own > 1 else 1)
            left.pop(0)
    cut = (*found, *aligned[-2:])
    before = len(cut) - len(shape)
    return shape if before >= 0 and cut == (1,) * before + shape else cut


def _is_causal(total: np.ndarray, matrix: tuple[int, int]) -> bool:
    """Return whether query i sees only the keys 0 to i, in all batches."""
    if total.shape[-2:] != matrix or math.prod(total.shape[:-2]) != 1:
        return False
    mask = total.reshape(matrix)
    hidden = np.triu(np.ones(matrix, bool), 1)
    return bool((mask[~hidden] == 0).all() and hidden.any() and (mask[hidden] <= -1e4).all())

"""Bring all that is added to the scores of an attention into one tensor."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...graph.expr import make_const, numpy_dtype
from .softmax_chain import Term
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
    """One bias for all terms; None where there is none, such as of terms of unlike shapes."""
    if not terms:
        return Masks()
    if all(isinstance(term.value, np.ndarray) for term in terms):
        return _of_constants(terms, dtype)
    if len({term.scores for term in terms}) > 1 or any(term.shape[-1:] == () for term in terms):
        return None
    wide = any(term.dtype != dtype for term in terms)
    kept = "float32" if wide else dtype
    values = [_expression(term, kept) for term in terms]
    value = functools.reduce(relax.op.add, values)
    shape = np.broadcast_shapes(*(term.shape for term in terms))
    if shape[-1] != terms[0].scores[-1]:
        return None  # the same for all keys, which is no bias at all
    layout = Strided.compact(shape).spread(terms[0].scores)
    return Masks(bias=Bias(value, shape, kept, layout))


def _expression(term: Term, dtype: str) -> relax.Expr:
    if isinstance(term.value, np.ndarray):
        return make_const(term.value.astype(numpy_dtype(dtype)))
    return term.value if term.dtype == dtype else relax.op.astype(term.value, dtype)


def _of_constants(terms: Sequence[Term], dtype: str) -> Masks | None:
    extents = _batches([term.scores[:-2] for term in terms])
    if extents is None:
        return None
    rows, keys = terms[0].scores[-2:]
    total = np.zeros((1,) * (len(extents) + 2), np.float32)
    for term in terms:
        total = total + _expanded(np.asarray(term.value, np.float32), term.scores, extents)
    if not total.any():
        return Masks()
    if _is_causal(total, (rows, keys)):
        return Masks(causal=True)
    total = np.broadcast_to(total, (*total.shape[:-1], keys))
    narrow = total.astype(numpy_dtype(dtype))
    # A finite number that would become minus infinity stays as it is.
    fits = bool(np.array_equal(np.isinf(narrow.astype(np.float32)), np.isinf(total)))
    kept = dtype if fits and all(term.dtype == dtype for term in terms) else "float32"
    value = narrow if kept == dtype else total
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


def _expanded(value: np.ndarray, scores: tuple[int, ...], extents: Sequence[int]) -> np.ndarray:
    """A term with its batch dimensions cut into ``extents``; 1 where it is broadcast."""
    aligned = (1,) * (len(scores) - value.ndim) + value.shape
    shape: list[int] = []
    left = list(extents)
    for extent, own in zip(scores[:-2], aligned[:-2], strict=True):
        reached = 1
        while reached < extent:
            reached *= left[0]
            shape.append(left.pop(0) if own > 1 else (left.pop(0), 1)[1])
    return value.reshape((*shape, *aligned[-2:]))


def _is_causal(total: np.ndarray, matrix: tuple[int, int]) -> bool:
    """Whether query i sees the keys 0 to i, in all batches alike."""
    if total.shape[-2:] != matrix or math.prod(total.shape[:-2]) != 1:
        return False
    mask = total.reshape(matrix)
    hidden = np.triu(np.ones(matrix, bool), 1)
    return bool((mask[~hidden] == 0).all() and hidden.any() and (mask[hidden] <= -1e4).all())

"""Recognize attention scores, ``scale * a b + terms``, however an importer writes them out.

After the matmul they may be reshaped (but for their last two axes, or there and back), cast,
multiplied by numbers and by constants for their rows, added to, and masked by ``where``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...graph.expr import (
    as_numpy,
    dtype_of,
    is_const,
    make_const,
    op_name,
    rank_of,
    shape_of,
)
from ...ir.dtypes import numpy_dtype
from .base import GraphView
from .sources import number_times

#: Fills of a mask from here on down hide a score.
_HIDDEN = -1e4
#: Added in place of finite fills: so far below every score that nothing of one is left.
_FAR_BELOW = -1e30


@dataclass(frozen=True)
class Term:
    """Something added to scores of shape ``scores``: a constant, or an expression of a shape."""

    value: np.ndarray | relax.Expr
    shape: tuple[int, ...]
    dtype: str
    scores: tuple[int, ...]

    def times(self, number: float) -> Term:
        if isinstance(self.value, np.ndarray):
            wide = self.value.astype(np.float32) * np.float32(number)
            return dataclasses.replace(self, value=wide, dtype="float32")
        factor = make_const(np.array(number, numpy_dtype(self.dtype)))
        return dataclasses.replace(self, value=relax.op.multiply(self.value, factor))


@dataclass(frozen=True)
class Scores:
    """``scale * factor * matmul + terms``; ``covered`` begins with the matmul's variable. The
    factor is a constant for each row, head or batch."""

    matmul: relax.Call
    covered: tuple[relax.Var, ...]
    scale: float = 1.0
    terms: tuple[Term, ...] = ()
    factor: relax.Expr | None = None


def scores_of(graph: GraphView, value: relax.Expr) -> Scores | None:
    """Return a value as scores, if it comes from a matmul."""
    call = graph.definition(value)
    name = op_name(call)
    if name == "relax.matmul":
        return Scores(call, (value,)) if rank_of(value) > 1 else None
    if name in ("relax.astype", "relax.reshape") and keeps_matrices(call):
        return _covering(value, scores_of(graph, call.args[0]))
    if name == "relax.reshape":
        return _added_by_position(graph, value, call)
    if (product := number_times(call)) is not None:
        inner = _covering(value, scores_of(graph, product[0]))
        return None if inner is None else _times(inner, product[1])
    if name == "relax.multiply":
        return _row_scaled(graph, value, call)
    if name in ("relax.add", "relax.subtract"):
        return _added(graph, value, call)
    return _masked(graph, value, call) if name == "relax.where" else None


def keeps_matrices(call: relax.Call) -> bool:
    """Return whether a cast or reshape keeps the last two axes and the type floating."""
    before, after = call.args[0], call
    if op_name(call) == "relax.astype":
        return all(dtype_of(end).startswith(("float", "bfloat")) for end in (before, after))
    if op_name(call) == "relax.broadcast_to" and math.prod(shape_of(before)) != math.prod(
        shape_of(after)
    ):
        return False
    return shape_of(before)[-2:] == shape_of(after)[-2:] and rank_of(after) > 1


def _covering(var: relax.Var, scores: Scores | None) -> Scores | None:
    if scores is None:
        return None
    return dataclasses.replace(scores, covered=(*scores.covered, var))


def _times(scores: Scores, number: float) -> Scores:
    terms = tuple(term.times(number) for term in scores.terms)
    return dataclasses.replace(scores, scale=scores.scale * number, terms=terms)


def _row_scaled(graph: GraphView, var: relax.Var, call: relax.Call) -> Scores | None:
    """Match a matmul times a constant for each row: its first operand is scaled."""
    for own, factor in (call.args, tuple(reversed(call.args))):
        if not is_const(factor) or shape_of(own) != shape_of(call) or shape_of(factor)[-1] != 1:
            continue
        inner = _covering(var, scores_of(graph, own))
        if inner is None or inner.terms or inner.factor is not None:
            continue
        rows = shape_of(inner.matmul.args[0])
        if shape_of(inner.matmul) == shape_of(call) and _spreads(shape_of(factor), rows):
            return dataclasses.replace(inner, factor=factor)
    return None


def _spreads(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether a tensor can be broadcast to a shape."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(own in (1, extent) for own, extent in pairs)


def _added(graph: GraphView, var: relax.Var, call: relax.Call) -> Scores | None:
    orders = [tuple(call.args)]
    if op_name(call) == "relax.add":
        orders.append((call.args[1], call.args[0]))
    for own, other in orders:
        if shape_of(own) != shape_of(call):
            continue
        inner = _covering(var, scores_of(graph, own))
        if inner is None:
            continue
        value = as_numpy(other) if is_const(other) else other
        term = Term(value, shape_of(other), dtype_of(other), shape_of(call))
        term = term.times(-1.0) if op_name(call) == "relax.subtract" else term
        return dataclasses.replace(inner, terms=(*inner.terms, term))
    return None


def _added_by_position(graph: GraphView, var: relax.Var, call: relax.Call) -> Scores | None:
    """Add terms where the queries and keys of an image are rows and columns of their own:
    ``reshape(reshape(scores) + terms)``, such as a term for each row and one for each column."""
    shape, others, covered = shape_of(call), [], [var]
    value = call.args[0]
    while op_name(made := graph.definition(value)) == "relax.add":
        covered.append(value)
        orders = made.args, tuple(reversed(made.args))
        own = [pair for pair in orders if _made_by(graph, pair[0], "add", "reshape")]
        own = [pair for pair in own if shape_of(pair[0]) == shape_of(value)]
        if not own:
            return None
        value, other = own[0]
        others.append(other)
    if op_name(made) != "relax.reshape" or shape_of(made.args[0]) != shape:
        return None
    inner = scores_of(graph, made.args[0])
    if inner is None:
        return None
    apart = shape_of(value)
    terms = [relax.op.reshape(relax.op.broadcast_to(other, apart), shape) for other in others]
    return dataclasses.replace(
        inner,
        covered=(*inner.covered, value, *reversed(covered)),
        terms=(*inner.terms, *(Term(t, shape, dtype_of(call), shape) for t in terms)),
    )


def _made_by(graph: GraphView, value: relax.Expr, *names: str) -> bool:
    return op_name(graph.definition(value)) in {f"relax.{name}" for name in names}


def _masked(graph: GraphView, var: relax.Var, call: relax.Call) -> Scores | None:
    """Match ``where`` with a large negative number for the scores that it hides."""
    condition, if_true, if_false = call.args
    hides = is_const(if_true)
    fill, own = (if_true, if_false) if hides else (if_false, if_true)
    if not is_const(fill) or as_numpy(fill).size != 1 or shape_of(own) != shape_of(call):
        return None
    number = float(as_numpy(fill).item())
    inner = _covering(var, scores_of(graph, own)) if number <= _HIDDEN else None
    if inner is None:
        return None
    wanted = -math.inf if number == -math.inf else _FAR_BELOW
    dtype = dtype_of(call) if number == -math.inf else "float32"
    branches = (wanted, 0.0) if hides else (0.0, wanted)
    if is_const(condition):
        made = np.where(as_numpy(condition), *branches).astype(numpy_dtype(dtype))
        term = Term(made, made.shape, dtype, shape_of(call))
    else:
        numbers = [make_const(np.array(branch), dtype) for branch in branches]
        value = relax.op.where(condition, *numbers)
        term = Term(value, shape_of(condition), dtype, shape_of(call))
    return dataclasses.replace(inner, terms=(*inner.terms, term))

"""Recognize attention weights, the softmax of scores (:mod:`.scores`) over their last axis.

Between softmax and the second matmul weights may be reshaped, cast, and set to zero where no score
is above minus infinity (PyTorch's safe softmax).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...graph.expr import as_numpy, attr_fields, is_const, op_name, rank_of, shape_of
from .base import GraphView
from .scores import Scores, keeps_matrices, scores_of


@dataclass(frozen=True)
class Weights:
    """A softmax of ``scores`` over the last axis; ``zeros`` if rows of minus infinity become
    zeros."""

    scores: Scores
    covered: tuple[relax.Var, ...]
    zeros: bool = False


def weights_of(graph: GraphView, value: relax.Expr) -> Weights | None:
    """Return the softmax that a value is, if its operand comes from a matmul."""
    call = graph.definition(value)
    name = op_name(call)
    if name in ("relax.astype", "relax.reshape", "relax.broadcast_to"):
        inner = weights_of(graph, call.args[0]) if keeps_matrices(call) else None
        if inner is None:
            return None
        return dataclasses.replace(inner, covered=(*inner.covered, value))
    if name == "relax.where":
        return _safe(graph, value, call)
    if name != "relax.nn.softmax" or int(call.attrs.axis) not in (-1, rank_of(value) - 1):
        return None
    scores = scores_of(graph, call.args[0])
    return None if scores is None else Weights(scores, (*scores.covered, value))


def _safe(graph: GraphView, var: relax.Var, call: relax.Call) -> Weights | None:
    """Match ``where(not any(scores != -inf), 0, softmax(scores))``."""
    condition, zero, chosen = call.args
    inner = weights_of(graph, chosen)
    if inner is None or inner.zeros or shape_of(chosen) != shape_of(call):
        return None
    covered = [var]
    if not _is_zero(graph, zero, covered):
        return None
    softmax = next(
        (graph.value[v] for v in inner.covered if op_name(graph.value[v]) == "relax.nn.softmax"),
        None,
    )
    value = condition
    for wanted in ("logical_not", "max", "logical_not", "equal"):
        made = _through_casts(graph, value, covered)
        if made is None or op_name(made) != f"relax.{wanted}":
            return None
        if wanted == "max" and not _over_last_axis(made):
            return None
        value, limit = made.args[0], made.args[-1]
    if not is_const(limit) or not np.all(as_numpy(limit) == -np.inf):
        return None
    if softmax is None or not _same(graph, value, softmax.args[0]):
        return None
    return dataclasses.replace(inner, covered=(*inner.covered, *covered), zeros=True)


def _is_zero(graph: GraphView, value: relax.Expr, covered: list[relax.Var]) -> bool:
    """Return whether all elements of a value are zero; the bindings that compute it are added to
    ``covered``."""
    if is_const(value):
        return not np.any(as_numpy(value))
    made = graph.definition(value)
    if op_name(made) in ("relax.zeros_like", "relax.zeros"):
        covered.append(value)
        return True
    if op_name(made) not in ("relax.full_like", "relax.full"):
        return False
    covered.append(value)
    return is_const(made.args[1]) and not np.any(as_numpy(made.args[1]))


def _through_casts(
    graph: GraphView, value: relax.Expr, covered: list[relax.Var]
) -> relax.Call | None:
    """Return the call that computed a value, ignoring casts and reshapes; variables are added to
    ``covered``."""
    while isinstance(value, relax.Var) and isinstance(graph.value.get(value), relax.Call):
        covered.append(value)
        made = graph.value[value]
        if op_name(made) not in ("relax.astype", "relax.reshape"):
            return made
        value = made.args[0]
    return None


def _over_last_axis(call: relax.Call) -> bool:
    axes = attr_fields(call.attrs).get("axis")
    rank = rank_of(call.args[0])
    return axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]


def _same(graph: GraphView, a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether two values are equal except for casts."""

    def bare(value: relax.Expr) -> relax.Expr:
        while op_name(made := graph.definition(value)) == "relax.astype":
            value = made.args[0]
        return value

    return bool(bare(a).same_as(bare(b)))

"""Pad the heads of attention with zeros to a multiple of 8 elements, the width of the kernels'
loads.

Zeros at the end of queries and keys do not change a score; those of values are cut from the result.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, dtype_of, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES

#: Heads are padded to a multiple of this, up to the longest head that kernels support.
_VECTOR, _MOST = 8, 128
_SOFTMAX = "relax.nn.softmax"
#: Operators that may be between the two matmuls of an attention.
_BETWEEN = relax_ops("astype reshape broadcast_to where add subtract multiply divide nn.softmax")


class PadHeads(Rewriter):
    """Pad the operands of both matmuls in 16 bit; in float32 there is no attention kernel."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("matmul")

    def start(self, func: relax.Function) -> None:
        self._of_scores: set[relax.Var] = set()
        self._of_values: set[relax.Var] = set()
        for var, call in self.values.items():
            if op_name(call) != "relax.matmul" or dtype_of(call) not in HALF_DTYPES:
                continue
            scores = _scores(self.values, call.args[0], False, {})
            if scores is not None and rank_of(call) > 2:
                self._of_scores.add(scores)
                self._of_values.add(var)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        a, b = call.args
        if self.old.var in self._of_scores and _missing(shape_of(a)[-1]):
            return call_like(call, [self._padded(a, -1), self._padded(b, -2)])
        size = shape_of(b)[-1]
        if self.old.var not in self._of_values or not _missing(size):
            return None
        result = self.emit(call_like(call, [a, self._padded(b, -1)]))
        axis = rank_of(result) - 1
        return relax.op.strided_slice(result, [axis], [0], [size])

    def _padded(self, x: relax.Expr, axis: int) -> relax.Expr:
        width = [0] * (2 * rank_of(x))
        width[2 * (axis % rank_of(x)) + 1] = _missing(shape_of(x)[axis])
        return self.emit(relax.op.nn.pad(x, width))


def _missing(size: int) -> int:
    return -size % _VECTOR if size <= _MOST else 0


def _scores(
    values: dict[relax.Var, relax.Expr],
    expr: relax.Expr,
    behind_softmax: bool,
    seen: dict[tuple[relax.Expr, bool], relax.Var | None],
) -> relax.Var | None:
    """The matmul whose softmax an expression is; ``seen`` are the answers so far."""
    key = expr, behind_softmax
    if key not in seen:
        seen[key] = _search(values, expr, behind_softmax, seen)
    return seen[key]


def _search(
    values: dict[relax.Var, relax.Expr],
    expr: relax.Expr,
    behind_softmax: bool,
    seen: dict[tuple[relax.Expr, bool], relax.Var | None],
) -> relax.Var | None:
    call = values.get(expr, expr) if isinstance(expr, relax.Var) else expr
    name = op_name(call)
    if name == "relax.matmul":
        batched = behind_softmax and all(rank_of(arg) > 2 for arg in call.args)
        return expr if batched else None
    if name not in _BETWEEN:
        return None
    behind = behind_softmax or name == _SOFTMAX
    found = (_scores(values, a, behind, seen) for a in call.args)
    return next((scores for scores in found if scores is not None), None)

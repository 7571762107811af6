"""Move norms of rows before the permutations that follow the computation of these rows.

Queries and keys are normalized after the permutation that brings heads to the front. Each row is
normalized independently, so that the permutation may also come last, where attention reads it as a
view.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import (
    call_like,
    dtype_of,
    ints,
    op_name,
    permutation_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES

_CAST = "relax.astype"


class MoveNorms(Rewriter):
    """Move norms of the last axis in front of permutations that leave this axis last."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.layer_norm nn.rms_norm")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if not is_of_last_axis(call):
            return None
        steps = self._steps(call.args[0])
        if not steps:
            return None
        rows = steps[0].args[0]
        for cast in (step for step in steps if op_name(step) == _CAST):
            rows = self.emit(call_like(cast, [rows]))
        result = self.emit(call_like(call, [rows, *call.args[1:]], axes=[-1]))
        for move in (step for step in steps if op_name(step) != _CAST):
            result = self.emit(call_like(move, [result, *move.args[1:]]))
        return result

    def _steps(self, expr: relax.Expr) -> list[relax.Call]:
        """The operations on the rows from the first permutation on, in order."""
        steps: list[relax.Call] = []
        while (made := self.producer(expr)) is not None and _keeps_rows(made):
            steps.insert(0, made)
            expr = made.args[0]
        names = [op_name(step) for step in steps]
        return steps[names.index("relax.permute_dims") :] if "relax.permute_dims" in names else []


def is_of_last_axis(norm: relax.Call) -> bool:
    """Whether a norm is over the last axis only."""
    return ints(norm.attrs.axes) in ((-1,), (rank_of(norm) - 1,))


def _keeps_rows(call: relax.Call) -> bool:
    name, source = op_name(call), call.args[0] if call.args else call
    if name == _CAST:
        return {dtype_of(call), dtype_of(source)} <= {*FLOAT_DTYPES}
    if name == "relax.reshape":
        return shape_of(source)[-1:] == shape_of(call)[-1:]
    return name == "relax.permute_dims" and permutation_of(call)[-1] == rank_of(call) - 1

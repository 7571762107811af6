"""Write attention of wide heads so that its matmuls may be kernels of their own.

A fused kernel keeps the result of its queries in registers. That of wide heads leaves room for few
queries, and where there are few heads as well, as in the middle of a latent-diffusion decoder, it
has work for few SMs: two GEMMs and a softmax are then several times as fast, although they write
the scores. Both are offered. For GEMMs the scores are float32, as they are inside a fused kernel:
16 bits would round scores of 30 by 0.008, and overflow before they are scaled.

PyTorch sets the rows of a softmax to zero that see no key. Without a mask there is none, unless
scores overflow.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import call_like, dtype_of, make_const, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ir.workload import Workload
from .patterns.base import GraphView
from .patterns.softmax_chain import Weights, weights_of
from .patterns.sources import number_times

#: Longest head whose attention is one kernel without asking.
LONGEST_NARROW = 128


class WideHeads(Rewriter):
    """Rewrite attention in 16 bits without a mask or bias."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("matmul")

    def start(self, func: relax.Function) -> None:
        self._graph = GraphView(func)
        self._weights: dict[relax.Var, Weights] = {}
        for var, call in self.values.items():
            if op_name(call) == "relax.matmul" and rank_of(var) > 1:
                weights = weights_of(self._graph, call.args[0])
                if weights is not None and self._is_wide(var, weights):
                    self._weights[var] = weights

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        weights = self._weights.get(self.old.var)
        if weights is None:
            return None
        scale, operands = weights.scores.scale, []
        for operand in weights.scores.matmul.args:
            scaled = number_times(self._graph.definition(operand))
            bare, factor = scaled or (operand, 1.0)
            operands.append(self.rename(bare))
            scale *= factor
        matmul = call_like(weights.scores.matmul, operands, out_dtype="float32")
        scores = self.emit(matmul)
        if scale != 1.0:
            factor = make_const(np.array(scale), "float32")
            scores = self.emit(relax.op.multiply(scores, factor))
        rows = self.emit(relax.op.nn.softmax(scores, -1))
        rounded = self.emit(relax.op.astype(rows, dtype_of(old)))
        return call_like(call, [self.reshaped(rounded, shape_of(old.args[0])), call.args[1]])

    def _is_wide(self, end: relax.Var, weights: Weights) -> bool:
        graph, scores, dtype = self._graph, weights.scores, dtype_of(end)
        operands = [*scores.matmul.args, graph.value[end].args[1]]
        inside = {*weights.covered, end}
        return (
            dtype in HALF_DTYPES
            and all(dtype_of(operand) == dtype for operand in operands)
            and shape_of(operands[0])[-1] > LONGEST_NARROW
            and not scores.terms
            and scores.factor is None
            and graph.returned.isdisjoint(weights.covered)
            and all(inside.issuperset(graph.readers[var]) for var in weights.covered)
        )


def has_wide_heads(workload: Workload) -> bool:
    """Return whether the matmuls of an attention are offered beside the fused kernel."""
    return workload.attention is not None and workload.c // workload.groups > LONGEST_NARROW

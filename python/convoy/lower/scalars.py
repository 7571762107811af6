"""Means of all elements, and what is computed of any reduction to one number, as tensors of one
element with axes.

TVM cannot split a reduction beside a block without loops, which operators on tensors of rank 0 are:
one thread would add up all elements.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import call_like, op_name, rank_of, shape_of
from ..graph.function import used_vars
from ..graph.rewriter import Rewriter
from .split_reductions import ELEMENTWISE, REDUCE


class Scalars(Rewriter):
    """Rewrite means, other reductions that element-wise operators read, and those operators."""

    ops: ClassVar[frozenset[str] | None] = frozenset(REDUCE) | ELEMENTWISE

    def start(self, func: relax.Function) -> None:
        #: The tensors with axes that those of rank 0 are views of.
        self._with_axes: dict[relax.Expr, relax.Expr] = {}
        scalars = [v for v in self.values.values() if op_name(v) in ELEMENTWISE and not rank_of(v)]
        self._read = {var for value in scalars for var in used_vars(value)}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if rank_of(old):
            return None
        if op_name(call) in REDUCE:
            alone = op_name(call) != "relax.mean" and self.old.var not in self._read
            if alone or not shape_of(call.args[0]):
                return None
            return self._view(call_like(call, call.args, keepdims=True))
        if not any(arg in self._with_axes for arg in call.args):
            return None
        return self._view(call_like(call, [self._with_axes.get(arg, arg) for arg in call.args]))

    def _view(self, call: relax.Call) -> relax.Expr:
        made = self.emit(call)
        scalar = self.emit(op.reshape(made, ()))
        self._with_axes[scalar] = made
        return scalar

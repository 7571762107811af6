"""Return reshapes of results as views.

TVM makes a view of a reshape that a function uses (RewriteDataflowReshape) and copies one that it
returns, since its storage plan could give the memory of the source to another tensor. Convoy's plan
knows which tensors leave the function, so that a copy is needed only where the source is the
caller's own: an input, a constant, or another result.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax
from tvm.relax.analysis import has_reshape_pattern

from ..graph.expr import op_name, shape_of
from ..graph.function import result_of, used_vars
from ..graph.rewriter import Rewriter


class OutputViews(Rewriter):
    """Replace kernels that only reshape a result of another kernel; for fused modules."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.call_tir"})

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._copies = {
            var
            for var, func in mod.functions.items()
            if isinstance(func, tvm.tirx.PrimFunc) and has_reshape_pattern(func)
        }
        return super().__call__(mod) if self._copies else mod

    def start(self, func: relax.Function) -> None:
        self._results = set(used_vars(result_of(func)))
        self._returned = set(self._results)  # a value is returned once, directly or as a view

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var not in self._results or call.args[0] not in self._copies:
            return None
        (operand,) = old.args[1].fields
        source = self._source(operand)
        if source not in self.values or source in self._returned:
            return None
        self._returned.add(source)
        return relax.op.reshape(call.args[1].fields[0], shape_of(old))

    def _source(self, expr: relax.Expr) -> relax.Expr:
        """The value that an operand is a view of; the operand itself if it is not a view."""
        while (made := self.values.get(expr)) is not None:
            if op_name(made) != "relax.reshape" and not isinstance(made, relax.Var):
                break
            expr = made if isinstance(made, relax.Var) else made.args[0]
        return expr

"""Accumulation of modules that TVM compiles alone."""

from __future__ import annotations

from typing import Any

from convoy.relay.lazy import tvm


def accumulating_in_float32(mod: Any) -> Any:
    """Compute 16-bit convolutions and GEMMs in float32, rounded once at their end.

    `lower.accumulate` does more of this, for functions without control flow.
    """
    from tvm import relax  # the mutator is a class of TVM

    from convoy.graph.expr import call_like, dtype_of, op_name
    from convoy.ir.dtypes import HALF_DTYPES
    from convoy.lower.accumulate import PRODUCTS

    @relax.expr_functor.mutator
    class Widen(relax.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            new = super().visit_call_(call)
            if op_name(call) not in PRODUCTS or dtype_of(call) not in HALF_DTYPES:
                return new
            wide = self.builder_.emit(call_like(new, list(new.args), out_dtype="float32"))
            return relax.op.astype(wide, dtype_of(call))

    widen = Widen(mod)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            widen.builder_.update_func(name, widen.visit_expr(function))
    return tvm.relax.transform.DeadCodeElimination()(widen.builder_.get())

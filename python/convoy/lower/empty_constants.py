"""Empty constants as empty allocations: a module that is saved cannot read them back."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from ..graph.expr import dtype_of, is_const, shape_of
from ..graph.function import bindings_of, main_function, result_of
from ..graph.rewriter import Rewriter


class EmptyConstants(Rewriter):
    """Allocate what TVM's FoldConstant made of ``zeros`` of an empty shape."""

    infer_first = False

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        _, func = main_function(mod)
        values = [binding.value for binding in bindings_of(func)]
        return super().__call__(mod) if any(map(_reads_empty, [*values, result_of(func)])) else mod

    def rename(self, expr: relax.Expr) -> relax.Expr:
        if not _is_empty(expr):
            return super().rename(expr)
        return self.emit(
            relax.op.builtin.alloc_tensor(relax.ShapeExpr(shape_of(expr)), dtype_of(expr), 0)
        )


def _is_empty(expr: relax.Expr) -> bool:
    return is_const(expr) and not math.prod(shape_of(expr))


def _reads_empty(expr: relax.Expr) -> bool:
    parts = getattr(expr, "args", None) or getattr(expr, "fields", None) or ()
    return _is_empty(expr) or any(map(_reads_empty, parts))

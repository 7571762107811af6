"""Split a function into input copies, a middle that can be captured, and output copies.

RewriteCUDAGraph captures runs of kernels all of whose operands are static storage or constants.
A kernel that reads a real input or writes a real output cannot be in one, and in the middle of the
program it would cut the captured run in two. So:

- kernels that read nothing but inputs and constants go to the front (the entry cast and layout
  conversion is such a kernel and serves as the copy into static storage);
- an input that any other kernel or external function reads is copied first;
- a result that is read again, or that an external function writes, is copied at the end, other
  results are written by their own kernel, moved to the end.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax

from ..graph.expr import is_tensor, op_name
from ..graph.function import bindings_of, main_function, used_vars, with_bindings
from ..graph.rewriter import Rewriter
from .in_place import copied


class StageForCapture(Rewriter):
    """Stage inputs and outputs of a fused module, where every operation is a kernel (call_tir), an
    external function or a reshape that has become a view."""

    infer_first: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._inputs: set[relax.Var] = set()
        self._staged: dict[relax.Var, relax.Expr] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return _reordered(super().__call__(mod))

    def start(self, func: relax.Function) -> None:
        self._inputs = {p for p in func.params if is_tensor(p)}
        for binding in bindings_of(func):
            if self._is_entry(binding.value):
                continue
            for var in used_vars(binding.value):
                if var in self._inputs and var not in self._staged:
                    self._staged[var] = self._copy(var)

    def _is_entry(self, value: relax.Expr) -> bool:
        return _is_kernel(value) and all(v in self._inputs for v in used_vars(value))

    def _copy(self, expr: relax.Expr) -> relax.Expr:
        return self.emit(self.builder.call_te(copied, expr, primfunc_name_hint="convoy_copy"))

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        return old if self._is_entry(old) else None

    def rename(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var) and expr in self._staged:
            return self._staged[expr]
        return super().rename(expr)

    def finish_output(self, expr: relax.Expr, declared: tvm.ir.Type) -> relax.Expr:
        reads = sum(self.uses[old] for old, new in self.renamed.items() if new.same_as(expr))
        if reads == 1 and _is_kernel(self.value_of.get(expr)):
            return expr
        return self._copy(expr)


def _is_kernel(value: relax.Expr | None) -> bool:
    return op_name(value) == "relax.call_tir"


def _reordered(mod: tvm.IRModule) -> tvm.IRModule:
    """Move kernels on inputs alone to the front and kernels that write results to the end."""
    _, func = main_function(mod)
    inputs = set(func.params)

    def rank(binding: relax.Binding) -> int:
        if _is_kernel(binding.value) and all(v in inputs for v in used_vars(binding.value)):
            return 0
        return 1 if isinstance(binding.var, relax.DataflowVar) else 2

    return with_bindings(mod, sorted(bindings_of(func), key=rank))

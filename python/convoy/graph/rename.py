"""Rename the global functions that a function calls."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator


def rename_calls(
    func: relax.Function, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]
) -> relax.Function:
    """Replace every global variable in ``names``."""
    return _Rename(names).visit_expr(func)


@mutator
class _Rename(PyExprMutator):
    def __init__(self, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, gv: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        return self._names.get(gv, gv)

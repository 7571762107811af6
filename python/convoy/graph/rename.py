"""Rename global functions, and the calls of them."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import PrimFunc

from .function import main_function, with_main


def rename_calls(
    func: relax.Function, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]
) -> relax.Function:
    """Replace every global variable in ``names``."""
    return _Rename(names).visit_expr(func)


def rename_kernels(mod: tvm.IRModule, suffix: str) -> tvm.IRModule:
    """Append ``suffix`` to the name of every kernel, so that the module can be joined with another
    one."""
    gv, func = main_function(mod)
    kernels = {g: f for g, f in mod.functions.items() if isinstance(f, PrimFunc)}
    names = {g: declared(f"{g.name_hint}{suffix}", g, kernels[g]) for g in kernels}
    for old, new in names.items():
        kernel = kernels[old]
        if kernel.attrs and "global_symbol" in kernel.attrs:
            kernels[old] = kernel.with_attr("global_symbol", new.name_hint)
    functions = {g: f for g, f in mod.functions.items() if g not in kernels}
    functions |= {names[g]: f for g, f in kernels.items()}
    functions[gv] = rename_calls(func, names)
    renamed = tvm.IRModule(functions, attrs=mod.attrs)
    return relax.transform.Normalize()(renamed)


def declared(name: str, like: tvm.ir.GlobalVar, func: PrimFunc) -> tvm.ir.GlobalVar:
    """A new global variable for a kernel, of the type of another one."""
    made = tvm.ir.GlobalVar(name)
    relax.expr._update_type(made, like.ty if like.ty is not None else func.ty)
    return made


def rename_main(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Give the entry function another name; nothing in the module calls it."""
    _, func = main_function(mod)
    if func.attrs and "global_symbol" in func.attrs:
        func = func.with_attr("global_symbol", name)
    return with_main(mod, name, func)


@mutator
class _Rename(PyExprMutator):
    def __init__(self, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, gv: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        return self._names.get(gv, gv)

"""Kernels for tensors that lie in others, in place of those for compact tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tvm
from tvm import relax

from ..graph.function import bindings_of, calls_of, main_function
from ..graph.rename import declared
from ..graph.slices import NotSliceable, Slice, is_layout, slices_of
from ..tir.row_strides import with_row_strides


def external_functions(mod: tvm.IRModule) -> set[str]:
    """The external functions that a network calls, which take the slices that it gives them."""
    calls = calls_of(mod, frozenset({"relax.call_dps_packed"}))
    return {str(call.args[0].global_symbol) for call in calls}


def on_slices(mod: tvm.IRModule, functions: Collection[str]) -> tvm.IRModule:
    """A module behind lowering to calls whose kernels take slices where they are given some.

    Raises NotSliceable for a kernel that cannot, and for an external function that is not one of
    ``functions``: a library that lowering calls.
    """
    gv, func = main_function(mod)
    slices = slices_of(func)
    return _Kernels(mod, slices, functions).module(gv, func) if slices else mod


class _Kernels:
    def __init__(
        self, mod: tvm.IRModule, slices: dict[relax.Var, Slice], functions: Collection[str]
    ) -> None:
        self._mod, self._slices, self._external = mod, slices, functions
        self._made: dict[tuple[str, tuple[tuple[int, int], ...]], tvm.ir.GlobalVar] = {}
        self._functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}

    def module(self, gv: tvm.ir.GlobalVar, func: relax.Function) -> tvm.IRModule:
        bindings = [relax.VarBinding(b.var, self._call(b.value)) for b in bindings_of(func)]
        body = relax.SeqExpr([relax.BindingBlock(bindings)], func.body.body)
        main = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        called = {b.value.op for b in bindings if isinstance(b.value, relax.Call)}
        functions = {
            g: f
            for g, f in [*self._mod.functions.items(), *self._functions.items()]
            if not isinstance(f, tvm.tirx.PrimFunc) or g in called
        }
        return tvm.IRModule({**functions, gv: main}, attrs=self._mod.attrs)

    def _call(self, value: relax.Expr) -> relax.Expr:
        if not isinstance(value, relax.Call):
            return value
        if isinstance(value.op, relax.ExternFunc):
            self._check(str(value.op.global_symbol), value.args)
        if not isinstance(value.op, tvm.ir.GlobalVar):
            return value
        strides = tuple(
            (i, self._slices[arg].row_stride)
            for i, arg in enumerate(value.args)
            if isinstance(arg, relax.Var) and arg in self._slices
        )
        if not strides:
            return value
        args = list(value.args)
        return relax.Call(self._kernel(value.op, strides), args, value.attrs, value.ty_args)

    def _check(self, symbol: str, args: Sequence[relax.Expr]) -> None:
        sliced = [arg for arg in args if isinstance(arg, relax.Var) and arg in self._slices]
        if sliced and symbol not in self._external and not is_layout(symbol):
            raise NotSliceable(f"{sliced[0].name}, which {symbol} reads or writes")

    def _kernel(
        self, compact: tvm.ir.GlobalVar, strides: tuple[tuple[int, int], ...]
    ) -> tvm.ir.GlobalVar:
        key = (compact.name_hint, strides)
        if key not in self._made:
            func = with_row_strides(self._mod[compact], dict(strides))
            name = f"{compact.name_hint}_in_place{len(self._made)}"
            if func.attrs and "global_symbol" in func.attrs:
                func = func.with_attr("global_symbol", name)
            self._made[key] = declared(name, compact, func)
            self._functions[self._made[key]] = func
        return self._made[key]

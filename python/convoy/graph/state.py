"""State that a function carries from call to call, updated in place.

A function whose attribute ``convoy.state`` is n gives new values of its last n parameters as its
last n results. Where the kernel that computes a new value may write over the old one, the result
is the parameter itself: nothing is copied between two calls, and a captured graph can be replayed
as it is. Other results stay tensors of their own, which the caller copies (``convoy.training``
does).
"""

from __future__ import annotations

from collections import defaultdict

import tvm
import tvm_ffi
from tvm import relax

from .expr import op_name
from .function import bindings_of, main_function, result_of, used_vars, with_main

#: Function attribute: how many of the last parameters are state.
STATE = "convoy.state"
#: Attribute of kernels each element of whose results depends on the same element of the inputs of
#: that shape, so that results may lie in their memory.
IN_PLACE = "convoy.in_place"


def update_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """Alias new state with old where the kernel allows it, after CallTIRRewrite."""
    gv, func = main_function(mod)
    count = int((func.attrs or {}).get(STATE, 0))
    if not count:
        return mod
    walk = _Calls(mod, func)
    results = walk.results()
    replaced: dict[relax.Var, relax.Var] = {}
    for param, result in zip(func.params[-count:], results[-count:], strict=True):
        if result not in replaced and walk.may_replace(result, param):
            replaced[result] = param
    if not replaced:
        return mod
    return with_main(mod, gv.name_hint, _substituted(func, replaced))


class _Calls:
    """Index of the calls that touch each variable, looking through tuples and aliases."""

    def __init__(self, mod: tvm.IRModule, func: relax.Function) -> None:
        self._mod, self._func = mod, func
        self._known: dict[relax.Var, relax.Expr] = {}
        self._allocated: set[relax.Var] = set()
        self._touching: dict[relax.Var, list[int]] = defaultdict(list)
        self._calls: list[relax.Call] = []
        for binding in bindings_of(func):
            value = binding.value
            if op_name(value) == "relax.builtin.alloc_tensor":
                self._allocated.add(binding.var)
            elif isinstance(value, relax.Call):
                for var in dict.fromkeys(used_vars(value)):
                    self._touching[self._origin(var)].append(len(self._calls))
                self._calls.append(value)
            else:
                self._known[binding.var] = value

    def results(self) -> list[relax.Var]:
        """Return the function's results, by the call that allocates them."""
        result = self._look_up(result_of(self._func))
        fields = result.fields if isinstance(result, relax.Tuple) else [result]
        return [self._origin(field) for field in fields]

    def may_replace(self, result: relax.Var, param: relax.Var) -> bool:
        """Return whether ``result`` may use the memory of ``param``."""
        if result not in self._allocated or not self._touching[result]:
            return False
        if not tvm_ffi.structural_equal(result.ty, param.ty):
            return False
        writer, last = self._touching[result][0], max(self._touching[param], default=-1)
        if last > writer:
            return False  # the old value is still needed
        return last < writer or self._in_place(self._calls[writer])

    def _in_place(self, call: relax.Call) -> bool:
        callee = self._mod[call.op] if isinstance(call.op, tvm.ir.GlobalVar) else None
        return callee is not None and bool((callee.attrs or {}).get(IN_PLACE, False))

    def _look_up(self, expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in self._known:
            expr = self._known[expr]
        if isinstance(expr, relax.TupleGetItem):
            whole = self._look_up(expr.tuple_value)
            if isinstance(whole, relax.Tuple):
                return self._look_up(whole.fields[expr.index])
        return expr

    def _origin(self, var: relax.Expr) -> relax.Expr:
        found = self._look_up(var)
        return found if isinstance(found, relax.Var) else var


def _substituted(func: relax.Function, replaced: dict[relax.Var, relax.Var]) -> relax.Function:
    def rename(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return replaced.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([rename(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(rename(expr.tuple_value), expr.index)
        if isinstance(expr, relax.Call):
            args = [rename(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, ty_args=expr.ty_args)
        return expr

    builder = relax.BlockBuilder()
    bindings = []
    for binding in bindings_of(func):
        if binding.var not in replaced:
            value = builder.normalize(rename(binding.value))
            bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.BindingBlock(bindings)], rename(func.body.body))
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

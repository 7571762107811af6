"""Load elements in front of the condition that guards them.

``if_then_else(inside, x[i], 0)``, as padding and pooling have it, becomes a branch around a load,
and a thread that pads eight elements waits for memory eight times in turn. Loaded from element 0
where ``i`` may lie outside, and selected afterwards, all loads of a thread are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ..tir.loads import is_select

#: Operations that may be evaluated whatever the condition: without effects, and no longer than a
#: branch.
_CHEAP = (tirx.Cast, tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)


@tirx.transform.prim_func_pass(opt_level=0, name="UnguardedLoads")
def unguarded_loads(
    func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Rewrite such choices of a device function between loads and a constant."""
    return func.with_body(tvm_ffi.structural_map(func.body, [(Call, _unguarded)]))


def _unguarded(call: Call) -> tirx.Expr:
    if not is_select(call) or str(call.args[0].ty.dtype) != "bool":
        return call
    condition, value, other = call.args
    loads = _loads(value) if _is_constant(other) else None
    if not loads:
        return call
    # In variables, all of which are computed: the compiler would make a branch of a choice between
    # expressions, and move the loads into it.
    ahead: list[tuple[tirx.Var, tirx.Expr]] = []

    def named(name: str, expr: tirx.Expr) -> tirx.Var:
        ahead.append((tirx.Var(name, expr.ty.dtype), expr))
        return ahead[-1][0]

    inside = named("inside", condition)
    loaded = iter([named("loaded", _within(load, inside, named)) for load in loads])
    value = tvm_ffi.structural_map(value, [(TensorLoad, lambda load: next(loaded))])
    result: tirx.Expr
    if isinstance(other, tirx.Broadcast):
        result = tirx.if_then_else(inside, value, other)
    else:
        result = tirx.Select(inside, named("value", value), other)
    for variable, expr in reversed(ahead):
        result = tirx.Let(variable, expr, result)
    return result


def _within(
    load: TensorLoad, inside: tirx.Var, named: Callable[[str, tirx.Expr], tirx.Var]
) -> TensorLoad:
    """The load where the condition holds, elsewhere one from the beginning of the tensor."""
    (index,) = load.indices
    if isinstance(index, tirx.Ramp):  # TVM has to see that the vector is aligned
        index = tirx.Ramp(_or_zero(inside, index.base), index.stride, index.lanes)
    else:
        index = _or_zero(inside, named("at", index))
    return tirx.BufferLoad(load.source, [index])


def _or_zero(inside: tirx.Var, index: tirx.Expr) -> tirx.Expr:
    return tirx.Select(inside, index, tirx.const(0, index.ty.dtype))


def _is_constant(value: tirx.Expr) -> bool:
    if isinstance(value, tirx.Broadcast):
        return _is_constant(value.value)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm))


def _loads(value: tirx.Expr) -> list[TensorLoad] | None:
    """The loads of a cheap expression, in order; None for any other one."""
    if isinstance(value, TensorLoad):
        return [value] if _can_be_ahead(value) else None
    if _is_constant(value) or isinstance(value, tirx.Var):
        return []
    if not isinstance(value, _CHEAP):
        return None
    parts = [value.value] if isinstance(value, tirx.Cast) else [value.a, value.b]
    found = [_loads(part) for part in parts]
    return None if None in found else [load for each in found for load in each or []]


def _can_be_ahead(load: TensorLoad) -> bool:
    """Whether a load is of device memory, at an index that is itself loaded from nowhere."""
    nested: list[TensorLoad] = []
    for index in load.indices:
        tvm_ffi.structural_walk(index, [(TensorLoad, nested.append)])
    return len(load.indices) == 1 and load.source.scope() == "global" and not nested

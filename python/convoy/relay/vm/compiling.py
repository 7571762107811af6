"""Compiling a module for VirtualMachine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import convoy
from convoy.errors import DynamicShape, UnsupportedOp
from convoy.relay.ast import Constant, Function, Var
from convoy.relay.build import device_target, from_attributes, static_graph
from convoy.relay.convert import to_relax
from convoy.relay.evaluate.features import needs_evaluator
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule, as_module
from convoy.relay.params import to_array
from convoy.relay.specialized import Specialized
from convoy.relay.tracing import parameter
from convoy.relay.types import TupleType, Type
from convoy.relay.visit import bind
from convoy.relay.vm.accumulation import accumulating_in_float32
from convoy.relay.vm.executable import Executable, Interpreted
from convoy.relay.vm.machine import VirtualMachine
from convoy.threads import one_at_a_time


@one_at_a_time
def compile(
    mod: Any,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Executable:
    """Compile a module for VirtualMachine.

    Arguments and errors are those of `relay.build`, but unknown sizes and an `if` are allowed.

    Code that TVM does not compile with unknown sizes is compiled when it runs. Modules with
    algebraic data types, references, recursion or functions as values are evaluated in Python;
    their operators run as compiled kernels.
    """
    mod = as_module(mod)
    kind = device_target(target)
    if needs_evaluator(mod):
        return _interpreted(_bound(mod, params), kind)
    infer_module(mod)
    from_attributes(mod, kind, options)
    try:
        exe = _ahead_of_time(mod, params, kind, options)
    except (DynamicShape, UnsupportedOp):
        specialized = Specialized(mod, params, kind, options)
        exe = Executable(None, specialized.input_names, is_graph=False, specialized=specialized)
    exe.result = _structure(mod["main"].checked_type.ret_type)
    exe.input_dtypes = dict(zip(exe.input_names, _dtypes(mod, params), strict=False))
    return exe


def _interpreted(mod: IRModule, kind: str) -> Interpreted:
    """Return a module that is evaluated, whose kernels are compiled by `compile`."""

    def compile_kernel(function: Function, device: Any) -> Any:
        return VirtualMachine(compile(IRModule.from_expr(function), target=kind), device).run

    return Interpreted(mod, kind, compile_kernel)


def _ahead_of_time(
    mod: IRModule, params: Mapping[str, Any] | None, kind: str, options: Mapping[str, Any]
) -> Executable:
    """Compile for all sizes; raises DynamicShape or UnsupportedOp where that cannot be done."""
    try:
        mod = static_graph(mod, params)
    except (DynamicShape, UnsupportedOp):
        converted = to_relax(mod, params)
        names = [str(p.name) for p in converted["main"].params]
        compiled = _with_tvm_alone(converted, kind)
        # Sizes that turn out to broadcast are left to the second way.
        specialized = Specialized(mod, params, kind, options)
        return Executable(compiled, names, is_graph=False, specialized=specialized)
    converted = to_relax(mod, params)
    names = [str(p.name) for p in converted["main"].params]
    return Executable(convoy.build(converted, target=kind, **options), names, is_graph=True)


def _dtypes(mod: IRModule, params: Mapping[str, Any] | None) -> list[str]:
    """Return the dtypes of the inputs, in order."""
    found: dict[Var, Type] = {}
    for param in mod["main"].params:
        if param.name_hint not in (params or {}):
            parameter(param.name_hint, param.checked_type, found)
    return [t.dtype for t in found.values()]  # type: ignore[attr-defined]


def _bound(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    """Return a module with values for parameters of `main` as constants."""
    values = {
        p: Constant(to_array(params[p.name_hint], f"params['{p.name_hint}']"))
        for p in mod["main"].params
        if params and p.name_hint in params
    }
    if not values:
        return mod
    mod = mod.shallow_copy()
    mod["main"] = bind(mod["main"], values)
    return mod


def _structure(type_: Type) -> Any:
    """Return the structure of a type: None for a tensor, a list for a tuple."""
    return list(map(_structure, type_.fields)) if isinstance(type_, TupleType) else None


def _with_tvm_alone(converted: Any, kind: str) -> Any:
    """Compile a Relax module that a graph cannot hold, by TVM alone."""
    try:
        return tvm.compile(accumulating_in_float32(converted), tvm.target.Target(kind))
    except Exception as failure:  # TVM raises many classes
        words = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise UnsupportedOp(
            f"a module that TVM does not compile for {kind}: {words}",
            remedy="With every size known and without an if, relay.build takes it",
        ) from failure

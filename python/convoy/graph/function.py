"""The entry function of a module: its bindings, and the variables that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tvm
from tvm import relax

from ..errors import InvalidOption, UnsupportedOp
from .expr import op_name


def main_function(mod: tvm.IRModule) -> tuple[tvm.ir.GlobalVar, relax.Function]:
    """Return the entry function: ``main``, or the only Relax function of the module.

    Raises InvalidOption for anything but a Relax module, UnsupportedOp when there is no such
    function.
    """
    if not isinstance(mod, tvm.IRModule):
        raise InvalidOption(
            f"a network of type {type(mod).__module__}.{type(mod).__name__}",
            "a Relax module",
            "convoy.from_onnx and convoy.relay.to_relax make one; convoy.compile takes a module "
            "of PyTorch.",
        )
    if "main" in mod and isinstance(func := mod["main"], relax.Function):
        return mod.get_global_var("main"), func
    found = [(gv, f) for gv, f in mod.functions.items() if isinstance(f, relax.Function)]
    if len(found) == 1:
        return found[0]
    raise UnsupportedOp(
        f"a module with the Relax functions {[gv.name_hint for gv, _ in found]}",
        "one function named main",
    )


def bindings_of(func: relax.Function) -> list[relax.Binding]:
    """Return all bindings of a function in order. Raises UnsupportedOp for control flow."""
    body = func.body
    if not isinstance(body, relax.SeqExpr):
        return []
    # Slices: they are faster than iterating over an array of TVM's.
    bindings = [b for block in body.blocks for b in block.bindings[:]]
    for binding in bindings:
        value = binding.value
        if not isinstance(value, relax.Call) and isinstance(value, (relax.If, relax.Function)):
            kind = "a conditional" if isinstance(value, relax.If) else "a local function"
            raise UnsupportedOp(
                f"{kind} bound to {binding.var.name}", "a function without control flow"
            )
    return bindings


def calls_of(mod: tvm.IRModule, names: frozenset[str]) -> list[relax.Call]:
    """Calls of these operators in the entry function, in order. Raises as :func:`bindings_of`."""
    _, func = main_function(mod)
    return [b.value for b in bindings_of(func) if op_name(b.value) in names]


def result_of(func: relax.Function) -> relax.Expr:
    return func.body.body if isinstance(func.body, relax.SeqExpr) else func.body


def used_vars(expr: relax.Expr) -> list[relax.Var]:
    """Variables that an expression reads, one entry for each use."""
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.Call):
        found = []
        for arg in expr.args[:]:
            found += [arg] if isinstance(arg, relax.Var) else used_vars(arg)
        return found
    if isinstance(expr, relax.Tuple):
        return [v for field in expr.fields[:] for v in used_vars(field)]
    if isinstance(expr, relax.TupleGetItem):
        return used_vars(expr.tuple_value)
    return []


def count_uses(func: relax.Function) -> Counter[relax.Var]:
    """Count the reads of each variable, including the function's result."""
    read = [var for binding in bindings_of(func) for var in used_vars(binding.value)]
    return Counter(read + used_vars(result_of(func)))


def with_bindings(mod: tvm.IRModule, bindings: Sequence[relax.Binding]) -> tvm.IRModule:
    """Return the module with these bindings of its entry function, in one dataflow block."""
    gv, func = main_function(mod)
    body = relax.SeqExpr([relax.DataflowBlock([*bindings])], result_of(func))
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    return with_main(mod, gv.name_hint, new)


def with_main(mod: tvm.IRModule, name: str, func: relax.Function) -> tvm.IRModule:
    """Replace the entry function, which nothing in the module calls, by one of this name."""
    gv, _ = main_function(mod)
    functions = {g: f for g, f in mod.functions.items() if not g.same_as(gv)}
    return tvm.IRModule({**functions, tvm.ir.GlobalVar(name): func}, attrs=mod.attrs)

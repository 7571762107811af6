"""List the kernels that TVM generates for a network, so that they can be timed alone."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from convoy.graph.expr import dtype_of, op_name, shape_of
from convoy.graph.function import bindings_of, main_function
from convoy.lower.passes import to_kernels


@dataclass(frozen=True)
class NativeCall:
    """One call: the function's name in the compiled module, and (shape, dtype) of its arguments,
    results last."""

    name: str
    operands: tuple[tuple[tuple[int, ...], str], ...]


def native_calls(mod: tvm.IRModule, target: str | tvm.target.Target) -> list[NativeCall]:
    """List calls of TVM's own kernels in a module in normal form, rewritten or not, in order.

    They have these names in what ``lower(mod, target, cuda_graph=False)`` compiles.
    """
    with tvm.target.Target(target), tvm.transform.PassContext():
        mod = to_kernels(mod)
    _, func = main_function(mod)
    calls = []
    for binding in bindings_of(func):
        call = binding.value
        if op_name(call) != "relax.call_tir":
            continue
        values = [*call.args[1], *_results(binding.var)]
        operands = tuple((shape_of(value), dtype_of(value)) for value in values)
        calls.append(NativeCall(str(call.args[0].name_hint), operands))
    return calls


def _results(var: relax.Var) -> list[relax.Var]:
    """A variable for each tensor of a result, which may be a tuple."""
    if isinstance(var.ty, relax.TensorType):
        return [var]
    return [relax.Var(f"{var.name}_{i}", part) for i, part in enumerate(var.ty.fields)]

"""Evaluate a Relax module in numpy, in float64: no kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from convoy.graph.expr import as_numpy, is_const, op_name, shape_of
from convoy.graph.function import bindings_of, main_function, result_of

from .numpy_operators import OPERATORS, Array

#: What stands in for an external function: from its operands to its result.
Function = Callable[..., Array]


def evaluate(
    module: tvm.IRModule,
    inputs: Sequence[Array],
    functions: Mapping[str, Function] | None = None,
    rounded_to: str = "float64",
) -> list[Array]:
    """Results of the entry function.

    Args:
        module: The module, of operators in ``OPERATORS``.
        inputs: The arguments of the entry function.
        functions: The external functions among its calls, by their symbols.
        rounded_to: A type that every value is rounded to, computed in float64 as all are.
    """
    _, func = main_function(module)

    def stored(value: Any) -> Any:
        if isinstance(value, list):
            return [stored(field) for field in value]
        floating = value.dtype.kind in "fV"  # V: types of ml_dtypes
        return value.astype(rounded_to).astype(np.float64) if floating else value

    values: dict[relax.Var, Any] = dict(zip(func.params, map(stored, inputs), strict=True))

    def value(expr: relax.Expr) -> Any:
        if is_const(expr):
            return stored(as_numpy(expr))
        if isinstance(expr, relax.Tuple):
            return [value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        if not isinstance(expr, relax.Call):
            return values[expr]
        name = op_name(expr).removeprefix("relax.")
        if name == "call_dps_packed":
            result = (functions or {})[str(expr.args[0].global_symbol)](*value(expr.args[1]))
        else:
            result = OPERATORS[name](expr, *map(value, filter(_is_tensors, expr.args)))
        if isinstance(expr.ty, relax.TensorType):
            assert result.shape == shape_of(expr), f"{name} of shape {result.shape}: {expr.ty}"
        return stored(result)

    for binding in bindings_of(func):
        values[binding.var] = value(binding.value)
    result = value(result_of(func))
    return result if isinstance(result, list) else [result]


def _is_tensors(expr: relax.Expr) -> bool:
    """Whether an argument is a tensor or a tuple of tensors; others are shapes and numbers."""
    kinds = expr.ty.fields if isinstance(expr.ty, relax.TupleType) else [expr.ty]
    return all(isinstance(kind, relax.TensorType) for kind in kinds)

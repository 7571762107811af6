"""Evaluate a Relax module of moves and matmuls in numpy, in float64: no kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from convoy.graph.expr import as_numpy, ints, is_const, op_name, permutation_of, shape_of
from convoy.graph.rewriter import bindings_of, main_function, result_of

Array = np.ndarray[Any, np.dtype[Any]]
#: What stands in for an external function: from its operands to its result.
Function = Callable[..., Array]


def evaluate(
    module: tvm.IRModule,
    inputs: Sequence[Array],
    functions: Mapping[str, Function] | None = None,
) -> list[Array]:
    """Results of the entry function, the external functions among its calls by their symbols."""
    _, func = main_function(module)
    values: dict[relax.Var, Any] = dict(zip(func.params, map(_wide, inputs), strict=True))

    def value(expr: relax.Expr) -> Any:
        if is_const(expr):
            return _wide(as_numpy(expr))
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
            tensors = [arg for arg in expr.args if isinstance(arg.ty, relax.TensorType)]
            result = _OPS[name](expr, *map(value, tensors))
        if isinstance(expr.ty, relax.TensorType):
            assert result.shape == shape_of(expr), f"{name} of shape {result.shape}: {expr.ty}"
        return result

    for binding in bindings_of(func):
        values[binding.var] = value(binding.value)
    result = value(result_of(func))
    return result if isinstance(result, list) else [result]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _reshaped(call: relax.Call, x: Array) -> Array:
    return x.reshape(shape_of(call))


def _slice(call: relax.Call, x: Array) -> Array:
    axes, begins, ends = ([int(field) for field in bound.fields] for bound in call.args[1:4])
    cut = [slice(None)] * x.ndim
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        cut[axis] = slice(begin, end)
    return x[tuple(cut)]


def _mean(call: relax.Call, x: Array) -> Array:
    axes = None if call.attrs.axis is None else ints(call.attrs.axis)
    return np.asarray(x.mean(axes, keepdims=bool(call.attrs.keepdims)))


_OPS: Mapping[str, Callable[..., Any]] = {
    "add": lambda call, a, b: a + b,
    "subtract": lambda call, a, b: a - b,
    "multiply": lambda call, a, b: a * b,
    "divide": lambda call, a, b: a / b,
    "negative": lambda call, x: -x,
    "nn.relu": lambda call, x: np.maximum(x, 0),
    "tanh": lambda call, x: np.tanh(x),
    "astype": lambda call, x: x,
    "matmul": lambda call, a, b: a @ b,
    "nn.softmax": lambda call, x: _softmax(x, int(call.attrs.axis)),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten"), _reshaped),
    "permute_dims": lambda call, x: x.transpose(permutation_of(call)),
    "broadcast_to": lambda call, x: np.broadcast_to(x, shape_of(call)),
    "split": lambda call, x: np.split(x, len(call.ty.fields), int(call.attrs.axis)),
    "mean": _mean,
    "nn.pad": lambda call, x: np.pad(x, np.reshape(ints(call.attrs.pad_width), (-1, 2))),
    "strided_slice": _slice,
    "take": lambda call, x, i: np.take(x, i, int(call.attrs.axis)),
}

"""Values of expressions without inputs: in numpy where it is simple, else compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function
from convoy.relay.builder import numpy_dtype
from convoy.relay.convert import to_relax
from convoy.relay.infer import infer_expr
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.transform.rewriting import op_name, walk
from convoy.relay.types import TensorType

Value = Any  # an array, or a tuple of Values

# Functions of arrays of floats, whose results have the dtype of the call.
_FLOAT: dict[str, Callable[..., Any]] = {
    "divide": np.divide,
    "exp": np.exp,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
_ANY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "copy": np.asarray,
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "not_equal": np.not_equal,
    "subtract": np.subtract,
    "where": np.where,
}
# The elements stay in their order.
_RESHAPES = {"reshape", "expand_dims", "squeeze", "nn.batch_flatten", "reshape_like"}


def values_of(exprs: Sequence[Expr]) -> list[Value]:
    """Return the values of expressions without free variables.

    Raises:
        UnsupportedOp: An operator that cannot be compiled.
    """
    infer_expr(ast.Tuple(list(exprs)))
    found: dict[int, Value] = {}
    for node in walk(ast.Tuple(list(exprs))):
        value = _value(node, found)
        if value is not None:
            found[id(node)] = value
    missing = [e for e in exprs if id(e) not in found]
    if missing:
        for expr, value in zip(missing, _compiled(missing), strict=True):
            found[id(expr)] = value
    return [found[id(e)] for e in exprs]


def _value(node: Expr, found: dict[int, Value]) -> Value | None:
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        fields = [found.get(id(f)) for f in node.fields]
        return None if any(f is None for f in fields) else tuple(fields)
    if isinstance(node, ast.TupleGetItem):
        value = found.get(id(node.tuple_value))
        return None if value is None else value[node.index]
    if not isinstance(node, Call) or not op_name(node):
        return None
    args = [found.get(id(a)) for a in node.args]
    if any(a is None for a in args) or not isinstance(node.checked_type_, TensorType):
        return None
    return _call(node, args, node.checked_type_)


def _call(node: Call, args: list[Any], result: TensorType) -> np.ndarray | None:
    name = op_name(node)
    attrs: Mapping[str, Any] = node.attrs or {}
    dtype = numpy_dtype(result.dtype)
    floats = all(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in args)
    with np.errstate(all="ignore"):
        if name in _ANY:
            value = _ANY[name](*args)
        elif name in _FLOAT and floats:
            value = _FLOAT[name](*args)
        elif name in _RESHAPES and result.is_static:
            value = args[0].reshape(result.concrete_shape)
        elif name == "transpose":
            axes = attrs["axes"]
            value = args[0].transpose(None if axes is None else [int(a) for a in axes])
        elif name == "concatenate":
            value = np.concatenate(args[0], axis=int(attrs["axis"]))
        elif name == "stack":
            value = np.stack(args[0], axis=int(attrs["axis"]))
        elif name == "cast" and not (args[0].dtype.kind == "f" and dtype.kind in "iu"):
            value = args[0]
        elif name == "broadcast_to" and result.is_static:
            value = np.broadcast_to(args[0], result.concrete_shape)
        else:
            return None
    return np.ascontiguousarray(value).astype(dtype, copy=False).reshape(np.shape(value))


def _compiled(exprs: Sequence[Expr]) -> list[Value]:
    """Compile expressions for the CPU, all at once, and run them."""
    function = Function([], ast.Tuple(list(exprs)))
    module = tvm.compile(to_relax(IRModule({"main": function})), tvm.target.Target("llvm"))
    results = tvm.relax.VirtualMachine(module, tvm.cpu(0))["main"]()
    return [_arrays(result) for result in results]


def _arrays(result: Any) -> Value:
    return result.numpy() if hasattr(result, "numpy") else tuple(map(_arrays, result))

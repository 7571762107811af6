"""Values of calls with constant arguments, in numpy, where that is simple.

Compiling such arithmetic (that of shapes, above all) would take longer than all else. What is not
here is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Op, Tuple
from convoy.relay.attrs import Attrs
from convoy.relay.builder import numpy_dtype
from convoy.relay.types import TensorType

Value = Any  # an array, or a tuple of Values

# Larger constants are data and not shapes.
_MAX_SIZE = 256

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
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
# Functions of floating-point arrays, whose results have the dtype of the call.
_FLOAT: dict[str, Callable[..., Any]] = {
    "divide": np.divide,
    "exp": np.exp,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
# The elements stay in their order.
_RESHAPES = ("expand_dims", "nn.batch_flatten", "reshape", "reshape_like", "squeeze")


def folded(call: Call, type_: Any) -> np.ndarray | None:
    """Return the value of a call of small integer constants, None for any other.

    Args:
        call: A call of an operator.
        type_: Its type, with known sizes.
    """
    if not isinstance(type_, TensorType) or not isinstance(call.op, Op):
        return None
    if not call.args or np.prod(type_.concrete_shape, dtype=np.int64) > _MAX_SIZE:
        return None
    args = [_small(arg) for arg in call.args]
    if any(arg is None for arg in args):
        return None
    return value_of(call.op.name, call.attrs or Attrs(None, {}), args, type_)


def _small(arg: Expr) -> Value | None:
    """Return the value of a small integer constant or a tuple of such."""
    if isinstance(arg, Tuple):
        fields = tuple(map(_small, arg.fields))
        return None if any(field is None for field in fields) else fields
    if not isinstance(arg, Constant) or arg.value.size > _MAX_SIZE:
        return None
    return arg.value if arg.value.dtype.kind in "iub" else None


def value_of(
    name: str, attrs: Mapping[str, Any], args: Sequence[Value], result: TensorType
) -> np.ndarray | None:
    """Return the value of a call, None where it is not simple.

    Args:
        name: The operator.
        attrs: Its attributes.
        args: The values of its arguments.
        result: Its type.
    """
    dtype = numpy_dtype(result.dtype)
    with np.errstate(all="ignore"):
        value = _computed(name, attrs, args, dtype)
    if value is None and name in ("broadcast_to", *_RESHAPES) and result.is_static:
        reshape = np.broadcast_to if name == "broadcast_to" else np.reshape
        value = reshape(args[0], result.concrete_shape)
    if value is None:
        return None
    return np.ascontiguousarray(value).astype(dtype, copy=False).reshape(np.shape(value))


def _computed(name: str, attrs: Mapping[str, Any], args: Sequence[Value], dtype: np.dtype) -> Any:
    if name in _ELEMENTWISE:
        return _ELEMENTWISE[name](*args)
    if name in _FLOAT and all(a.dtype.kind == "f" for a in args):
        return _FLOAT[name](*args)
    # From floating-point numbers to integers compilers differ outside the range.
    if name in ("cast", "cast_like") and not (args[0].dtype.kind == "f" and dtype.kind in "iu"):
        return args[0]
    if name == "transpose":
        axes = attrs["axes"]
        return args[0].transpose(None if axes is None else [int(a) for a in axes])
    if name == "concatenate":
        return np.concatenate(args[0], axis=int(attrs["axis"]))
    if name == "stack":
        return np.stack(args[0], axis=int(attrs["axis"]))
    if name == "take" and attrs["mode"] == "clip" and not attrs["batch_dims"]:
        axis = attrs["axis"]
        return np.take(args[0], args[1], None if axis is None else int(axis), mode="clip")
    if name == "strided_slice" and args[0].ndim == 1 and attrs["slice_mode"] == "end":
        begin, end, strides = (attrs[f] for f in ("begin", "end", "strides"))
        if len(begin) == len(end) == 1:
            return args[0][int(begin[0]) : int(end[0]) : int(strides[0]) if strides else 1]
    whole = name == "prod" and attrs["axis"] is None and not attrs["exclude"]
    if whole and args[0].dtype.kind in "iub":
        return args[0].prod(dtype=args[0].dtype)
    return None

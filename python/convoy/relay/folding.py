"""Arithmetic of small constants in numpy: the operators that compute shapes.

Compiling them would take longer than all else. What is not here is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Op, Tuple
from convoy.relay.attrs import Attrs
from convoy.relay.builder import numpy_dtype
from convoy.relay.types import TensorType

# Larger constants are data and not shapes.
_MAX_SIZE = 256

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
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
    "not_equal": np.not_equal,
    "subtract": np.subtract,
    "where": np.where,
}
_RESHAPES = ("copy", "expand_dims", "reshape", "squeeze")


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
    values = _constants(call.args)
    if values is None:
        return None
    value = _value(call.op.name, call.attrs or Attrs(None, {}), values, type_)
    if value is None:
        return None
    return (
        np.asarray(value).astype(numpy_dtype(type_.dtype), copy=False).reshape(type_.concrete_shape)
    )


def _constants(args: Sequence[Expr]) -> list[np.ndarray] | None:
    """Return the values of arguments, of which the fields of a tuple count one by one."""
    found = []
    for arg in args:
        for part in arg.fields if isinstance(arg, Tuple) else (arg,):
            if not isinstance(part, Constant) or part.value.size > _MAX_SIZE:
                return None
            if part.value.dtype.kind not in "iub":
                return None
            found.append(part.value)
    return found


def _value(name: str, attrs: Attrs, values: list[np.ndarray], type_: TensorType) -> Any:
    if name in _ELEMENTWISE:
        with np.errstate(all="ignore"):
            return _ELEMENTWISE[name](*values)
    if name in ("cast", "cast_like") and type_.dtype.startswith(("int", "uint", "bool")):
        return values[0]
    if name in _RESHAPES:
        return values[0]
    if name == "concatenate":
        return np.concatenate(values, axis=int(attrs["axis"]))
    if name == "stack":
        return np.stack(values, axis=int(attrs["axis"]))
    if name == "take" and attrs["mode"] == "clip" and not attrs["batch_dims"]:
        axis = attrs["axis"]
        return np.take(values[0], values[1], None if axis is None else int(axis), mode="clip")
    if name == "strided_slice" and values[0].ndim == 1 and attrs["slice_mode"] == "end":
        begin, end, strides = (attrs[f] for f in ("begin", "end", "strides"))
        if len(begin) == len(end) == 1:
            return values[0][int(begin[0]) : int(end[0]) : int(strides[0]) if strides else 1]
    if name == "prod" and attrs["axis"] is None and not attrs["exclude"]:
        return values[0].prod(dtype=values[0].dtype)
    return None

"""Elementwise operators with one, two or many inputs; casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    FLOATS,
    cast,
    dtype_of,
    scalar_like,
    value_of,
)
from convoy.relay.frontend.elementwise import (
    floor_modulo,
    is_inf,
    power,
    round_even,
    truncated_division,
)
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": R.abs, "Neg": R.negative, "Ceil": R.ceil, "Floor": R.floor, "Round": round_even,
    "Sqrt": R.sqrt, "Exp": R.exp, "Log": R.log, "Sin": R.sin, "Cos": R.cos, "Tan": R.tan,
    "Asin": R.asin, "Acos": R.acos, "Atan": R.atan, "Sinh": R.sinh, "Cosh": R.cosh,
    "Asinh": R.asinh, "Acosh": R.acosh, "Atanh": R.atanh, "Tanh": R.tanh, "Sigmoid": R.sigmoid,
    "Sign": R.sign, "Not": R.logical_not, "BitwiseNot": R.bitwise_not, "Erf": R.erf,
    "IsNaN": R.isnan, "Identity": lambda x: x,
}  # fmt: skip

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": R.add, "Sub": R.subtract, "Mul": R.multiply, "And": R.logical_and, "Or": R.logical_or,
    "Xor": R.logical_xor, "Equal": R.equal, "Greater": R.greater, "Less": R.less,
    "GreaterOrEqual": R.greater_equal, "LessOrEqual": R.less_equal, "BitwiseAnd": R.bitwise_and,
    "BitwiseOr": R.bitwise_or, "BitwiseXor": R.bitwise_xor, "Div": truncated_division,
    "Pow": power,
}  # fmt: skip

_MANY: dict[str, Callable[[Any, Any], Any]] = {
    "Sum": R.add, "Mean": R.add, "Max": R.maximum, "Min": R.minimum,
}  # fmt: skip


@convert(*_UNARY)
def unary(node: Node) -> Expr:
    return _UNARY[node.name](node.get(0) if node.name == "Identity" else node[0])


@convert(*_BINARY)
def binary(node: Node) -> Expr:
    left, right = node[0], node[1]
    if node.attr("broadcast") and node.rank(1) < node.rank(0):  # opset 6 and earlier
        axis = node.attr("axis")
        if axis is not None:
            after = node.rank(0) - node.axis(axis) - node.rank(1)
            right = R.expand_dims(right, node.rank(1), after) if after else right
    return _BINARY[node.name](left, right)


@convert(*_MANY)
def many(node: Node) -> Expr:
    result = reduce(_MANY[node.name], node.inputs)
    if node.name == "Mean":
        return R.divide(result, scalar_like(len(node.inputs), result))
    return result


@convert("Reciprocal")
def reciprocal(node: Node) -> Expr:
    return R.divide(scalar_like(1, node[0]), node[0])


@convert("Mod")
def modulo(node: Node) -> Expr:
    if node.attr("fmod", 0):
        return R.trunc_mod(node[0], node[1])
    return floor_modulo(node[0], node[1])


@convert("IsInf")
def infinite(node: Node) -> Expr:
    return is_inf(node[0], node.attr("detect_positive", 1), node.attr("detect_negative", 1))


@convert("BitShift")
def bit_shift(node: Node) -> Expr:
    shift = R.left_shift if node.attr("direction") == "LEFT" else R.right_shift
    return shift(node[0], node[1])


@convert("Where")
def where(node: Node) -> Expr:
    return R.where(node[0], node[1], node[2])


@convert("Clip")
def clip(node: Node) -> Expr:
    """Clip; bounds are inputs since opset 11."""
    low, high = node.get(1), node.get(2)
    if "min" in node.attrs or "max" in node.attrs:
        low = scalar_like(node.attrs["min"], node[0]) if "min" in node.attrs else None
        high = scalar_like(node.attrs["max"], node[0]) if "max" in node.attrs else None
    numbers = [None if b is None else value_of(b) for b in (low, high)]
    if node.dtype() in ("float16", "float32") and all(n is not None for n in numbers):
        a_min, a_max = (float(n.reshape(-1)[0]) for n in numbers if n is not None)
        if a_min <= a_max and np.isfinite([a_min, a_max]).all():
            return R.clip(node[0], a_min, a_max)
    result = node[0]
    if low is not None:
        result = R.maximum(result, low)
    return result if high is None else R.minimum(result, high)


@convert("Cast")
def convert_cast(node: Node) -> Expr:
    from onnx import TensorProto, helper

    to = node.attrs["to"]
    if isinstance(to, str):  # before opset 6
        to = TensorProto.DataType.Value(to)
    return cast_to(node, helper.tensor_dtype_to_np_dtype(to).name)


@convert("CastLike")
def cast_like(node: Node) -> Expr:
    return cast_to(node, node.dtype(1))


@convert("BitCast")
def bit_cast(node: Node) -> Expr:
    from onnx import helper

    data = cast(node[0], "uint8") if node.dtype() == "bool" else node[0]
    return R.reinterpret(data, helper.tensor_dtype_to_np_dtype(node.attrs["to"]).name)


def cast_to(node: Node, dtype: str) -> Expr:
    """Cast the first input.

    Raises:
        UnsupportedOp: Text, or a dtype that Relay does not have.
    """
    if dtype.startswith(("str", "float8")) or dtype == "object":
        raise node.error(f"a cast to {dtype}", "numbers or bools")
    if dtype == "bool" and dtype_of(node[0]) in FLOATS:
        return R.not_equal(node[0], scalar_like(0, node[0]))
    return cast(node[0], dtype)

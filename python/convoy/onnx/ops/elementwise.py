"""Arithmetic, comparisons and casts, element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...ir.dtypes import numpy_dtype
from ..call import Call, Value, checked_dtype, converter

#: Operators of the same meaning in Relax, by their names.
_SAME = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "negative", "Sin": "sin", "Sinh": "sinh",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "Sigmoid": "sigmoid",
    "Round": "round", "Not": "logical_not", "BitwiseNot": "bitwise_not", "IsNaN": "isnan",
    "Where": "where", "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide",
    "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
}  # fmt: skip


@converter(*_SAME)
def same(call: Call) -> Value:
    return call.make(_SAME[call.op], *_aligned(call))


def _aligned(call: Call) -> list[Value]:
    """The inputs; before opset 7 the second one may be aligned with an axis of the first."""
    values = [call.x(i) for i in range(len(call.inputs))]
    if call.version < 7 and call.attrs.get("broadcast") and "axis" in call.attrs:
        behind = call.rank(0) - call.axis(0) - call.rank(1)
        values[1] = call.expr(call.reshape(call.value(1), (*call.shape(1), *(1,) * behind)))
    return values


@converter("Identity")
def identity(call: Call) -> Value:
    return call.inputs[0]


@converter("Reciprocal")
def reciprocal(call: Call) -> Value:
    return call.do("Div", call.const(1), call.value(0))


@converter("Sign")
def sign(call: Call) -> Value:
    """Convert Sign; the sign of NaN is NaN."""
    found = call.make("sign", call.x())
    if not call.dtype().startswith(("float", "bfloat")):
        return found
    return call.do("Where", call.do("IsNaN", call.value(0)), call.value(0), found)


@converter("IsInf")
def is_inf(call: Call) -> Value:
    x, zero = call.value(0), call.const(0)
    found = call.make("isinf", call.x())
    if not call.attrs.get("detect_positive", 1):
        found = call.do("And", found, call.do("Less", x, zero))
    if not call.attrs.get("detect_negative", 1):
        found = call.do("And", found, call.do("Greater", x, zero))
    return found


@converter("Pow")
def power(call: Call) -> Value:
    """The result has the dtype of the base; integers are raised in float64."""
    dtype = call.dtype(0)
    base, exponent = _aligned(call)
    array = call.array(1)
    if array is not None and array.size == 1 and array.item() == 2 and array.ndim <= call.rank(0):
        return call.make("multiply", base, base)
    common = dtype if dtype.startswith(("float", "bfloat")) else "float64"
    return call.cast(
        call.make("power", call.cast(base, common), call.cast(exponent, common)), dtype
    )


@converter("Mod")
def modulo(call: Call) -> Value:
    """With ``fmod`` the sign is that of the dividend, otherwise of the divisor."""
    a, b = call.x(0), call.x(1)
    floats = call.dtype().startswith(("float", "bfloat"))
    truncated = bool(call.attrs.get("fmod", 0))
    if not floats:
        return call.make("mod" if truncated else "floor_mod", a, b)
    do, zero, infinity = call.do, call.const(0), call.const(np.inf)
    quotient = call.make("trunc" if truncated else "floor", call.make("divide", a, b))
    rest = do("Sub", a, do("Mul", quotient, b))
    # Infinity times a quotient of 0 is no number: what is left is the dividend or the divisor.
    endless = do("And", do("Equal", do("Abs", b), infinity), do("Less", do("Abs", a), infinity))
    if truncated:
        return do("Where", endless, a, rest)
    apart = do("Less", do("Mul", do("Sign", a), do("Sign", b)), zero)
    return do("Where", endless, do("Where", apart, b, a), rest)


@converter("BitShift")
def bit_shift(call: Call) -> Value:
    """By the width and more, or by less than nothing, nothing (or the sign) is left."""
    left, dtype = call.attrs["direction"] == "LEFT", call.dtype()
    width = call.const(0).itemsize * 8
    count = call.value(1)
    far = call.do("GreaterOrEqual", count, call.const(width))
    if not dtype.startswith("u"):
        far = call.do("Or", far, call.do("Less", count, call.const(0)))
    near = call.do("Where", far, call.const(0), count)
    shifted = call.make("left_shift" if left else "right_shift", call.x(0), near)
    gone: Value = call.const(0)
    if not left and not dtype.startswith("u"):
        negative = call.do("Less", call.value(0), call.const(0))
        gone = call.do("Where", negative, call.const(-1), call.const(0))
    return call.do("Where", far, gone, shifted)


_MANY = {"Sum": "add", "Max": "maximum", "Min": "minimum"}


@converter(*_MANY)
def many(call: Call) -> Value:
    values = (call.x(i) for i in range(len(call.inputs)))
    return functools.reduce(lambda a, b: call.make(_MANY[call.op], a, b), values)


@converter("Mean")
def mean(call: Call) -> Value:
    total = call.do("Sum", *call.inputs)
    return call.do("Div", total, call.const(len(call.inputs)))


@converter("Cast")
def cast(call: Call) -> Value:
    from onnx import TensorProto, helper

    to = call.attrs["to"]
    if isinstance(to, str):  # before opset 6
        to = TensorProto.DataType.Value(to)
    return _cast(call, _target(call, helper.tensor_dtype_to_np_dtype(int(to))))


@converter("CastLike")
def cast_like(call: Call) -> Value:
    return _cast(call, _target(call, numpy_dtype(call.dtype(1))))


def _target(call: Call, dtype: Any) -> str:
    return checked_dtype(dtype, f"{call.op} {call.name!r} to a tensor")


def _cast(call: Call, target: str) -> Value:
    if target == call.dtype():
        return call.inputs[0]
    if target == "bool":
        return call.make("not_equal", call.x(), call.const(0))
    with np.errstate(all="ignore"):
        return call.cast(call.inputs[0], target)

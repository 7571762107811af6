"""Arithmetic, comparisons and casts, element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from tvm import relax

from ..call import Call, Converter, Value, checked_dtype, converter, numpy_dtype

_UNARY = {
    "Abs": relax.op.abs, "Acos": relax.op.acos, "Acosh": relax.op.acosh, "Asin": relax.op.asin,
    "Asinh": relax.op.asinh, "Atan": relax.op.atan, "Atanh": relax.op.atanh, "Ceil": relax.op.ceil,
    "Cos": relax.op.cos, "Cosh": relax.op.cosh, "Erf": relax.op.erf, "Exp": relax.op.exp,
    "Floor": relax.op.floor, "Log": relax.op.log, "Neg": relax.op.negative, "Sign": relax.op.sign,
    "Sin": relax.op.sin, "Sinh": relax.op.sinh, "Sqrt": relax.op.sqrt, "Tan": relax.op.tan,
    "Tanh": relax.op.tanh, "Sigmoid": relax.op.sigmoid, "Not": relax.op.logical_not,
    "BitwiseNot": relax.op.bitwise_not, "IsNaN": relax.op.isnan,
}  # fmt: skip

_BINARY = {
    "Add": relax.op.add, "Sub": relax.op.subtract, "Mul": relax.op.multiply,
    "And": relax.op.logical_and, "Or": relax.op.logical_or, "Xor": relax.op.logical_xor,
    "BitwiseAnd": relax.op.bitwise_and, "BitwiseOr": relax.op.bitwise_or,
    "BitwiseXor": relax.op.bitwise_xor, "Equal": relax.op.equal, "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal, "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal, "Div": relax.op.divide,
}  # fmt: skip


def _unary(function: Any) -> Converter:
    def convert(call: Call) -> Value:
        return function(call.x())

    return convert


def _binary(function: Any) -> Converter:
    def convert(call: Call) -> Value:
        _check_broadcast(call)
        return function(call.x(0), call.x(1))

    return convert


def _check_broadcast(call: Call) -> None:
    """Broadcasting along an axis was an attribute before opset 7."""
    if call.version < 7 and call.attrs.get("broadcast"):
        raise call.unsupported("with the attribute 'broadcast' of opset 6", "opset 7 or newer")


for _name, _function in _UNARY.items():
    converter(_name)(_unary(_function))
for _name, _function in _BINARY.items():
    converter(_name)(_binary(_function))


@converter("Identity")
def identity(call: Call) -> Value:
    return call.inputs[0]


@converter("Reciprocal")
def reciprocal(call: Call) -> Value:
    return relax.op.divide(call.expr(call.const(1)), call.x())


@converter("Round")
def round_half_to_even(call: Call) -> Value:
    """TVM's round may take halves away from zero."""
    x = call.x()
    floor = call.emit(relax.op.floor(x))
    above = call.emit(relax.op.subtract(x, floor))
    half, one, two = (call.expr(call.const(v)) for v in (0.5, 1, 2))
    odd = call.do("Sub", floor, call.do("Mul", two, relax_floor(call, call.do("Div", floor, two))))
    tie = call.do("Add", floor, odd)
    up = call.do("Add", floor, one)
    inner = call.emit(relax.op.where(relax.op.greater(above, half), up, tie))
    rounded = call.emit(relax.op.where(relax.op.less(above, half), floor, inner))
    # Infinities have no distance to their floor.
    return relax.op.where(relax.op.equal(floor, x), x, rounded)


def relax_floor(call: Call, value: Value) -> Value:
    return call.emit(relax.op.floor(call.expr(value)))


@converter("IsInf")
def is_inf(call: Call) -> Value:
    x, zero = call.x(), call.expr(call.const(0))
    found = relax.op.isinf(x)
    if not call.attrs.get("detect_positive", 1):
        found = relax.op.logical_and(found, relax.op.less(x, zero))
    if not call.attrs.get("detect_negative", 1):
        found = relax.op.logical_and(found, relax.op.greater(x, zero))
    return found


@converter("Pow")
def power(call: Call) -> Value:
    """The result has the dtype of the base; integers are raised in float64."""
    dtype = call.dtype(0)
    _check_broadcast(call)
    array = call.array(1)
    if array is not None and array.size == 1 and array.item() == 2 and array.ndim <= call.rank(0):
        return relax.op.multiply(call.x(0), call.x(0))
    common = dtype if dtype.startswith(("float", "bfloat")) else "float64"
    result = relax.op.power(
        call.expr(call.cast(call.value(0), common)), call.expr(call.cast(call.value(1), common))
    )
    return call.cast(call.emit(result), dtype)


@converter("Mod")
def modulo(call: Call) -> Value:
    """With ``fmod`` the sign is that of the dividend, otherwise of the divisor."""
    a, b = call.x(0), call.x(1)
    if not call.attrs.get("fmod", 0):
        if not call.dtype().startswith(("int", "uint")):
            raise call.unsupported("of floats with fmod=0", "fmod=1, or integers")
        return relax.op.floor_mod(a, b)
    if call.dtype().startswith(("int", "uint")):
        return relax.op.mod(a, b)
    quotient = call.emit(relax.op.divide(a, b))
    return relax.op.subtract(a, call.emit(relax.op.multiply(relax.op.trunc(quotient), b)))


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
    shifted = call.emit(
        (relax.op.left_shift if left else relax.op.right_shift)(call.x(0), call.expr(near))
    )
    gone: Value = call.const(0)
    if not left and not dtype.startswith("u"):
        negative = call.do("Less", call.value(0), call.const(0))
        gone = call.do("Where", negative, call.const(-1), call.const(0))
    return call.do("Where", far, gone, shifted)


@converter("Where")
def where(call: Call) -> Value:
    return relax.op.where(call.x(0), call.x(1), call.x(2))


def _variadic(function: Any) -> Converter:
    def convert(call: Call) -> Value:
        return functools.reduce(
            lambda a, b: call.emit(function(a, b)), (call.x(i) for i in range(len(call.inputs)))
        )

    return convert


converter("Sum")(_variadic(relax.op.add))
converter("Max")(_variadic(relax.op.maximum))
converter("Min")(_variadic(relax.op.minimum))


@converter("Mean")
def mean(call: Call) -> Value:
    total = call.do("Sum", *call.inputs)
    return relax.op.divide(call.expr(total), call.expr(call.const(len(call.inputs))))


@converter("Cast")
def cast(call: Call) -> Value:
    from onnx import helper

    target = _target(call, helper.tensor_dtype_to_np_dtype(int(call.attrs["to"])))
    return _cast(call, target)


@converter("CastLike")
def cast_like(call: Call) -> Value:
    return _cast(call, _target(call, numpy_dtype(call.dtype(1))))


def _target(call: Call, dtype: Any) -> str:
    return checked_dtype(dtype, f"{call.op} {call.name!r} to a tensor")


def _cast(call: Call, target: str) -> Value:
    if target == call.dtype():
        return call.inputs[0]
    if target == "bool":
        return relax.op.not_equal(call.x(), call.expr(call.const(0)))
    if isinstance(call.inputs[0], np.ndarray):
        with np.errstate(all="ignore"):
            return call.inputs[0].astype(numpy_dtype(target))
    return relax.op.astype(call.x(), target)

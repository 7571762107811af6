"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    broadcast_shape,
    broadcast_to,
    cast,
    dims,
    dtype_of,
    is_float,
    rank,
    scalar_like,
)
from convoy.relay.frontend.elementwise import (
    floor_modulo,
    is_inf,
    power,
    round_even,
    truncated_division,
)
from convoy.relay.frontend.pytorch.indexing import columns
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import tensor as R


def _floating() -> dict[str, Callable[..., Any]]:
    """Return functions whose results are floating-point."""
    return {
        "sqrt": R.sqrt, "rsqrt": R.rsqrt, "exp": R.exp, "log": R.log, "log2": R.log2,
        "log10": R.log10, "sin": R.sin, "cos": R.cos, "tan": R.tan, "asin": R.asin, "acos": R.acos,
        "atan": R.atan, "sinh": R.sinh, "cosh": R.cosh, "asinh": R.asinh, "acosh": R.acosh,
        "atanh": R.atanh, "tanh": R.tanh, "sigmoid": R.sigmoid, "erf": R.erf,
        "reciprocal": lambda x: R.divide(scalar_like(1, x), x),
        "log1p": lambda x: R.log(R.add(scalar_like(1, x), x)),
        "expm1": lambda x: R.subtract(R.exp(x), scalar_like(1, x)),
        "exp2": lambda x: R.exp(R.multiply(x, scalar_like(np.log(2), x))),
        "erfc": lambda x: R.subtract(scalar_like(1, x), R.erf(x)),
        "special_erf": R.erf, "special_expit": R.sigmoid,
    }  # fmt: skip


_FLOAT = _floating()


def _same() -> dict[str, Callable[..., Any]]:
    """Return functions that keep the dtype, and tests."""
    return {
        "abs": R.abs, "neg": R.negative, "sign": R.sign, "sgn": R.sign, "positive": lambda x: x,
        "square": lambda x: R.multiply(x, x), "isnan": lambda x: _on_floats(R.isnan, x),
        "isfinite": lambda x: R.logical_not(R.logical_or(is_inf(x), _on_floats(R.isnan, x))),
        "isinf": is_inf,
        "isposinf": lambda x: is_inf(x, True, False), "isneginf": lambda x: is_inf(x, False, True),
        "frac": lambda x: R.subtract(x, R.trunc(x)),
    }  # fmt: skip


_SAME = _same()

_WHOLE = {"floor": R.floor, "ceil": R.ceil, "round": round_even, "trunc": R.trunc, "fix": R.trunc}

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "mul": R.multiply, "multiply": R.multiply, "maximum": R.maximum, "minimum": R.minimum,
    "fmax": R.maximum, "fmin": R.minimum, "eq": R.equal, "ne": R.not_equal, "lt": R.less,
    "le": R.less_equal, "gt": R.greater, "ge": R.greater_equal, "remainder": floor_modulo,
    "fmod": R.trunc_mod,
    "greater": R.greater, "less": R.less, "not_equal": R.not_equal, "less_equal": R.less_equal,
    "greater_equal": R.greater_equal,
}  # fmt: skip

_BITS = {
    "bitwise_and": (R.bitwise_and, R.logical_and), "__and__": (R.bitwise_and, R.logical_and),
    "bitwise_or": (R.bitwise_or, R.logical_or), "__or__": (R.bitwise_or, R.logical_or),
    "bitwise_xor": (R.bitwise_xor, R.logical_xor), "__xor__": (R.bitwise_xor, R.logical_xor),
    "bitwise_left_shift": (R.left_shift, None), "__lshift__": (R.left_shift, None),
    "bitwise_right_shift": (R.right_shift, None), "__rshift__": (R.right_shift, None),
}  # fmt: skip

_LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": R.logical_and, "logical_or": R.logical_or, "logical_xor": R.logical_xor,
}  # fmt: skip


def _on_floats(test: Callable[[Any], Any], data: Expr) -> Expr:
    return test(data) if is_float(data) else R.cast(R.zeros_like(data), "bool")


@convert(*_FLOAT)
def floating(call: Call) -> Expr:
    return _FLOAT[call.short](call.floating())


@convert(*_SAME)
def same(call: Call) -> Expr:
    return _SAME[call.short](call["self"])


@convert(*_WHOLE)
def whole(call: Call) -> Expr:
    """Round to whole numbers, or to a number of decimals."""
    data = call["self"]
    if not is_float(data):
        return data
    decimals = call.get("decimals", 0)
    if decimals:
        factor = scalar_like(10.0**decimals, data)
        return R.divide(round_even(R.multiply(data, factor)), factor)
    return _WHOLE[call.short](data)


@convert(*_BINARY)
def binary(call: Call) -> Expr:
    left, right = call.promoted("self", "other")
    if dtype_of(left) == "bool" and call.short in ("mul", "multiply"):
        return R.logical_and(left, right)
    return _BINARY[call.short](left, right)


@convert("add", "sub", "subtract", "rsub")
def add(call: Call) -> Expr:
    """Add or subtract `alpha * other`."""
    left, right = call.promoted("self", "other")
    alpha = call.get("alpha", 1)
    if dtype_of(left) == "bool":
        return R.logical_or(left, right)
    if call.short == "rsub":
        left, right = right, left
        left, right = left, _times(right, alpha)
        return R.subtract(left, right)
    right = _times(right, alpha)
    return (R.add if call.short == "add" else R.subtract)(left, right)


def _times(value: Expr, factor: Any) -> Expr:
    return value if factor == 1 else R.multiply(value, scalar_like(factor, value))


@convert("div", "divide", "true_divide", "floor_divide")
def div(call: Call) -> Expr:
    """Divide; whole numbers give floating-point results unless they are rounded."""
    left, right = call.promoted("self", "other")
    mode = call.get("rounding_mode")
    if call.short == "floor_divide":
        mode = "floor"
    if mode is None:
        if not is_float(left):
            left, right = (cast(v, call.default_dtype) for v in (left, right))
        return R.divide(left, right)
    if mode == "trunc":
        if is_float(left):
            return R.trunc(R.divide(left, right))
        return truncated_division(left, right)
    return R.floor(R.divide(left, right)) if is_float(left) else R.floor_divide(left, right)


@convert("pow")
def convert_pow(call: Call) -> Expr:
    left, right = call.promoted("self", "exponent")
    return power(left, right)


@convert("atan2", "arctan2")
def atan2(call: Call) -> Expr:
    """Compute the angle of (x, y) from the quadrants of the signs."""
    y, x = call.promoted("self", "other")
    zero, pi = scalar_like(0, x), scalar_like(np.pi, x)
    base = R.atan(R.divide(y, x))
    turned = R.where(R.less(y, zero), R.subtract(base, pi), R.add(base, pi))
    result = R.where(R.less(x, zero), turned, base)
    half = scalar_like(np.pi / 2, x)
    upright = R.where(R.greater(y, zero), half, R.negative(half))
    upright = R.where(R.equal(y, zero), zero, upright)
    return R.where(R.equal(x, zero), upright, result)


@convert(*_BITS)
def bits(call: Call) -> Expr:
    left, right = call.promoted("self", "other")
    numbers, bools = _BITS[call.name.rpartition("::")[2] if "__" in call.name else call.short]
    if dtype_of(left) == "bool" and bools is not None:
        return bools(left, right)
    return numbers(left, right)


def as_bool(value: Expr) -> Expr:
    """Test for values other than zero."""
    if dtype_of(value) == "bool":
        return value
    return R.not_equal(value, scalar_like(0, value))


@convert(*_LOGIC)
def logic(call: Call) -> Expr:
    return _LOGIC[call.short](as_bool(call["self"]), as_bool(call["other"]))


@convert("logical_not")
def logical_not(call: Call) -> Expr:
    return R.logical_not(as_bool(call["self"]))


@convert("bitwise_not")
def bitwise_not(call: Call) -> Expr:
    data = call["self"]
    return R.logical_not(data) if dtype_of(data) == "bool" else R.bitwise_not(data)


@convert("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def clamp(call: Call) -> Expr:
    """Bound by numbers or by tensors."""
    names = ("min_val", "max_val") if call.short == "hardtanh" else ("min", "max")
    low, high = call.get(names[0]), call.get(names[1])
    data = call["self"]
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    if numbers and dtype_of(data) in ("float16", "float32"):
        return R.clip(data, float(low), float(high))
    for bound, function in ((low, R.maximum), (high, R.minimum)):
        if bound is None:
            continue
        call.args["self"], call.args["bound"] = data, bound
        data = function(*call.promoted("self", "bound"))
    return data


@convert("where")
def where(call: Call) -> Any:
    """Choose by a condition; of a condition alone, find where it is true."""
    if "self" not in call.args:
        places = cast(R.argwhere(call["condition"]), "int64")
        return columns(places, rank(call["condition"]))
    left, right = call.promoted("self", "other")
    return R.where(as_bool(call["condition"]), left, right)


@convert("masked_fill")
def masked_fill(call: Call) -> Expr:
    data = call["self"]
    value = call.get("value")
    filled = (
        scalar_like(value, data) if not isinstance(value, Expr) else cast(value, dtype_of(data))
    )
    shape = broadcast_shape(dims(data), dims(call["mask"]))
    return R.where(as_bool(call["mask"]), filled, broadcast_to(data, shape))


@convert("lerp")
def lerp(call: Call) -> Expr:
    start, end, weight = call.promoted("self", "end", "weight")
    return R.add(start, R.multiply(weight, R.subtract(end, start)))


@convert("addcmul", "addcdiv")
def addc(call: Call) -> Expr:
    base, first, second = call.promoted("self", "tensor1", "tensor2")
    term = R.multiply(first, second) if call.short == "addcmul" else R.divide(first, second)
    return R.add(base, _times(term, call.get("value", 1)))


@convert("nan_to_num")
def nan_to_num(call: Call) -> Expr:
    data = call["self"]
    info = np.finfo(dtype_of(data))
    result = R.where(R.isnan(data), scalar_like(call.get("nan", 0.0), data), data)
    for sign, name in ((1, "posinf"), (-1, "neginf")):
        bound = scalar_like(call.get(name, sign * float(info.max)), data)
        result = R.where(is_inf(data, sign > 0, sign < 0), bound, result)
    return result


@convert("_to_copy", "to", "type_as", "float", "half", "double", "int", "long", "bool")
def convert_to(call: Call) -> Expr:
    """Cast; devices and layouts do not matter."""
    names = {"float": "float32", "half": "float16", "double": "float64", "int": "int32",
             "long": "int64", "bool": "bool"}  # fmt: skip
    dtype = names.get(call.short) or call.dtype()
    if call.get("other") is not None:
        dtype = dtype_of(call["other"])
    data = call["self"]
    if dtype is None:
        return data
    return as_bool(data) if dtype == "bool" else cast(data, dtype)

"""Quantised operators as integer arithmetic, `real = scale * (q - zero_point)`.

Products are exact in int32. Requantisation multiplies by `scale_in / scale_out` as a 31-bit
fraction and a shift, in 64 bits, as gemmlowp and TFLite do (Jacob et al. 2018, "Quantization and
training of neural networks for efficient integer-arithmetic-only inference"). Functions of one
value are computed on the real numbers between dequantisation and quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convoy.errors import UnsupportedDtype, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.canonicalize.registry import (
    attrs_of,
    const,
    constant,
    expands,
    name_of,
    plain,
    type_of,
)
from convoy.relay.types import TensorType

_UNARY = ["abs", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt", "tanh"]
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
_ROUNDINGS = ("None", "UPWARD", "TONEAREST")


def along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """Numbers along one axis, to be broadcast; one number alone is a scalar."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * ndim
    shape[axis % ndim] = values.size
    return values.reshape(shape)


def limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest value.

    Raises:
        UnsupportedDtype: a type that no quantised value has.
    """
    if dtype not in _INTEGERS:
        raise UnsupportedDtype(f"a quantised {dtype or 'value of no type'}", ", ".join(_INTEGERS))
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def saturated(value: Expr, dtype: str) -> Expr:
    """Cut to what an integer type holds, in that type."""
    if dtype == "int32":
        return plain("cast", value, dtype="int32")
    low, high = limits(dtype)
    return plain("cast", plain("clip", value, a_min=low, a_max=high), dtype=dtype)


# ---- between integers and real numbers


def quantized(
    value: Expr, scale: np.ndarray, zero: np.ndarray, axis: int, ndim: int, dtype: str
) -> Expr:
    """round(value / scale) + zero point, saturated."""
    real = plain("divide", value, const(along(scale, axis, ndim), "float32"))
    shifted = plain("add", plain("round", real), const(along(zero, axis, ndim), "float32"))
    low, high = limits(dtype)
    return plain("cast", plain("clip", shifted, a_min=low, a_max=high), dtype=dtype)


def dequantized(
    value: Expr, scale: np.ndarray, zero: np.ndarray, axis: int, ndim: int, dtype: str = "float32"
) -> Expr:
    """scale * (value - zero point)."""
    centred = _centred(value, along(zero, axis, ndim))
    real = plain("cast", centred, dtype="float32")
    result = plain("multiply", real, const(along(scale, axis, ndim), "float32"))
    return result if dtype in ("", "float32") else plain("cast", result, dtype=dtype)


def _centred(value: Expr, zero: np.ndarray) -> Expr:
    """value - zero point, as int32."""
    wide = plain("cast", value, dtype="int32")
    return plain("subtract", wide, const(zero, "int32")) if zero.any() else wide


def single(values: np.ndarray) -> np.ndarray:
    """The only scale or zero point.

    Raises:
        UnsupportedOp: several where one value is for the whole tensor.
    """
    if values.size != 1:
        raise UnsupportedOp(f"{values.size} scales or zero points for a whole tensor", "one")
    return values.reshape(())


def fixed_point(multiplier: float) -> tuple[int, int]:
    """A factor as a fraction of 31 bits and a power of two.

    Raises:
        UnsupportedOp: a factor that is none: a scale of zero, say.
    """
    if not math.isfinite(multiplier) or abs(multiplier) >= 2**31:
        raise UnsupportedOp(f"scales with a ratio of {multiplier}", "finite ones over zero")
    if multiplier == 0:
        return 0, 0
    fraction, exponent = math.frexp(multiplier)
    rounded = math.floor(abs(fraction) * 2**31 + 0.5)
    if rounded == 2**31:
        rounded, exponent = rounded // 2, exponent + 1
    return int(math.copysign(rounded, fraction)), exponent


def rescaled(value: Expr, factors: np.ndarray, rounding: str) -> Expr:
    """An int32 value times real factors, of a shape that broadcasts, rounded to int32.

    Halves go up ("UPWARD", the default) or away from zero ("TONEAREST").
    """
    pairs = [fixed_point(float(f)) for f in factors.reshape(-1)]
    fractions = np.array([p[0] for p in pairs], "int64").reshape(factors.shape)
    shifts = np.array([p[1] for p in pairs], "int64").reshape(factors.shape)
    wide = plain("cast", value, dtype="int64")
    if (shifts > 0).any():
        wide = plain("left_shift", wide, const(np.maximum(shifts, 0), "int64"))
    product = plain("multiply", wide, const(fractions, "int64"))
    right = 31 - np.minimum(shifts, 0)
    half: Expr = const(np.int64(1) << (right - 1), "int64")
    if rounding == "TONEAREST":
        below = const((np.int64(1) << (right - 1)) - 1, "int64")
        half = plain("where", plain("less", product, const(0, "int64")), below, half)
    shifted = plain("right_shift", plain("add", product, half), const(right, "int64"))
    return plain("cast", shifted, dtype="int32")


def requantized(
    value: Expr, numbers: Sequence[np.ndarray], axis: int, ndim: int, rounding: str = "UPWARD"
) -> Expr:
    """The value in other steps, as int32 that is not saturated yet. ``numbers`` are its scale and
    zero point, and those of the result."""
    scale, zero, out_scale, out_zero = numbers
    result = _centred(value, along(zero, axis, ndim))
    step = float(single(out_scale))
    if step == 0:
        raise UnsupportedOp("scales with a ratio to zero", "a scale over zero")
    factors = scale.astype("float64") / step
    if scale.size != 1 or factors.reshape(()) != 1:
        result = rescaled(result, along(factors, axis, ndim), rounding)
    if out_zero.any():
        result = plain("add", result, const(single(out_zero), "int32"))
    return result


# ---- operators


def _numbers(call: ast.Call, args: Sequence[Expr], *positions: int) -> list[np.ndarray]:
    """Scales and zero points."""
    return [constant(call, args[i], "a scale or zero point") for i in positions]


def _axis(call: ast.Call) -> int:
    return int(attrs_of(call).get("axis", -1))


@expands("qnn.quantize")
def quantize(call: ast.Call, args: Sequence[Expr]) -> Expr:
    scale, zero = _numbers(call, args, 1, 2)
    ndim = len(type_of(call, 0).shape)
    return quantized(args[0], scale, zero, _axis(call), ndim, attrs_of(call)["out_dtype"])


@expands("qnn.dequantize")
def dequantize(call: ast.Call, args: Sequence[Expr]) -> Expr:
    scale, zero = _numbers(call, args, 1, 2)
    ndim = len(type_of(call, 0).shape)
    return dequantized(args[0], scale, zero, _axis(call), ndim, attrs_of(call)["out_dtype"])


@expands("qnn.requantize")
def requantize(call: ast.Call, args: Sequence[Expr]) -> Expr:
    numbers = _numbers(call, args, 1, 2, 3, 4)
    rounding, ndim = attrs_of(call)["rounding"], len(type_of(call, 0).shape)
    if rounding not in _ROUNDINGS:
        raise UnsupportedOp(f"qnn.requantize with rounding='{rounding}'", ", ".join(_ROUNDINGS))
    result = requantized(args[0], numbers, _axis(call), ndim, rounding)
    return saturated(result, _result(call).dtype)


def _result(call: ast.Call) -> TensorType:
    found = call.checked_type
    assert isinstance(found, TensorType)
    return found


@expands("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul")
def product(call: ast.Call, args: Sequence[Expr]) -> Expr:
    """The plain operator on int32 values without their zero points; padding is then zero."""
    zero, weight_zero = _numbers(call, args, 2, 3)
    if weight_zero.size != 1 and (weight_zero.size == 0 or weight_zero.any()):
        raise UnsupportedOp(f"{name_of(call)} with several zero points", "one each")
    data = _centred(args[0], single(zero))
    weight = _centred(args[1], weight_zero.reshape(-1)[0])
    attrs = {**attrs_of(call), "out_dtype": _result(call).dtype}
    return plain(f"nn.{name_of(call).removeprefix('qnn.')}", data, weight, **attrs)


@expands("qnn.add", "qnn.subtract", "qnn.mul")
def binary(call: ast.Call, args: Sequence[Expr]) -> Expr:
    name, dtype = name_of(call), _result(call).dtype
    numbers = _numbers(call, args, 2, 3, 4, 5, 6, 7)
    (lhs_scale, lhs_zero, rhs_scale, rhs_zero, out_scale, out_zero) = numbers
    axes = [int(attrs_of(call)[f"{side}_axis"]) for side in ("lhs", "rhs")]
    dims = [len(type_of(call, i).shape) for i in (0, 1)]
    if name == "qnn.mul":
        if lhs_scale.size > 1 or rhs_scale.size > 1:
            raise UnsupportedOp("qnn.mul with a scale for each channel", "one scale")
        lhs = _centred(args[0], single(lhs_zero))
        rhs = _centred(args[1], single(rhs_zero))
        scale = lhs_scale.astype("float64") * rhs_scale.astype("float64")
        zero = np.zeros((), "int32")
        both = plain("multiply", lhs, rhs)
        result = requantized(both, (scale, zero, out_scale, out_zero), -1, max(dims))
        return saturated(result, dtype)
    out = (out_scale, out_zero)
    lhs = requantized(args[0], (lhs_scale, lhs_zero, *out), axes[0], dims[0])
    rhs = requantized(args[1], (rhs_scale, rhs_zero, *out), axes[1], dims[1])
    shift = const(single(out_zero), "int32")
    if name == "qnn.add":  # each has the zero point in it, the sum twice
        return saturated(plain("subtract", plain("add", lhs, rhs), shift), dtype)
    return saturated(plain("add", plain("subtract", lhs, rhs), shift), dtype)


@expands("qnn.concatenate")
def concatenate(call: ast.Call, args: Sequence[Expr]) -> Expr:
    data, scales, zeros = args[:3]
    out_scale, out_zero = _numbers(call, args, 3, 4)
    axis, dtype = _axis(call), _result(call).dtype
    if not (isinstance(scales, ast.Tuple) and isinstance(zeros, ast.Tuple)):
        raise UnsupportedOp("qnn.concatenate with scales that are computed", "tuples of constants")
    parts = []
    for i, (scale, zero) in enumerate(zip(scales.fields, zeros.fields, strict=True)):
        value = data.fields[i] if isinstance(data, ast.Tuple) else ast.TupleGetItem(data, i)
        numbers = [constant(call, scale, "a scale"), constant(call, zero, "a zero point")]
        wide = requantized(value, [*numbers, out_scale, out_zero], -1, len(_result(call).shape))
        parts.append(saturated(wide, dtype))
    return plain("concatenate", ast.Tuple(parts), axis=axis)


@expands("qnn.avg_pool2d")
def avg_pool2d(call: ast.Call, args: Sequence[Expr]) -> Expr:
    """The mean of int32 values in the steps of the output."""
    numbers = _numbers(call, args, 1, 2, 3, 4)
    wide = requantized(args[0], numbers, -1, len(_result(call).shape))
    return saturated(plain("nn.avg_pool2d", wide, **attrs_of(call)), _result(call).dtype)


@expands(*(f"qnn.{name}" for name in [*_UNARY, "hardswish", "softmax", "leaky_relu"]))
def unary(call: ast.Call, args: Sequence[Expr]) -> Expr:
    scale, zero, out_scale, out_zero = _numbers(call, args, 1, 2, 3, 4)
    name, type_ = name_of(call).removeprefix("qnn."), _result(call)
    ndim = len(type_.shape)
    real = dequantized(args[0], scale, zero, -1, ndim)
    if name == "hardswish":
        gate = plain("clip", plain("add", real, const(3, "float32")), a_min=0.0, a_max=6.0)
        value = plain("divide", plain("multiply", real, gate), const(6, "float32"))
    else:
        prefix = "nn." if name in ("softmax", "leaky_relu") else ""
        value = plain(prefix + name, real, **attrs_of(call))
    return quantized(value, out_scale, out_zero, -1, ndim, type_.dtype)

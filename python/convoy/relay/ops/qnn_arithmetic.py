"""Integer arithmetic of quantized values, as Relay expressions: real = scale * (q - zero_point).

Convolutions and GEMMs are exact in int32. Requantization multiplies by scale_in / scale_out as a
31-bit fraction and a shift, in 64 bits, as gemmlowp and TFLite do (Jacob et al. 2018, "Quantization
and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from convoy.errors import UnsupportedDtype, UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.ops.expansion_call import const, plain
from convoy.relay.types import TensorType

# Rounding and dtype of requantizations that have none of their own.
CONFIG: ContextVar[tuple[str, str]] = ContextVar("CONFIG", default=("UPWARD", "int64"))

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


def along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """Shape a vector to broadcast along one axis of `ndim`; a single value becomes a scalar."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * ndim
    shape[axis % ndim] = values.size
    return values.reshape(shape)


@dataclass(frozen=True)
class Scale:
    """A scale or zero point that is computed.

    Attributes:
        value: The expression, of one value or of one for each channel.
        type: Its type.
    """

    value: Expr
    type: TensorType

    def along(self, axis: int, ndim: int, dtype: str) -> Expr:
        """Shape the value to broadcast along one axis of `ndim`, in a dtype."""
        shape: list[int] = []
        if self.type.shape and self.type.concrete_shape != (1,):
            shape = [1] * ndim
            shape[axis % ndim] = -1
        found = plain("reshape", self.value, newshape=shape)
        return found if self.type.dtype == dtype else plain("cast", found, dtype=dtype)


def _along(value: np.ndarray | Scale, axis: int, ndim: int, dtype: str) -> Expr:
    if isinstance(value, Scale):
        return value.along(axis, ndim, dtype)
    return const(along(value, axis, ndim), dtype)


def limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type.

    Raises:
        UnsupportedDtype: A type that quantized values do not have.
    """
    if dtype not in _INTEGERS:
        raise UnsupportedDtype(f"a quantized {dtype or 'value of no type'}", ", ".join(_INTEGERS))
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def saturated(value: Expr, dtype: str) -> Expr:
    """Clip an int32 value to the range of an integer type and cast it."""
    if dtype == "int32":
        return plain("cast", value, dtype="int32")
    low, high = limits(dtype)
    return plain("cast", plain("clip", value, a_min=low, a_max=high), dtype=dtype)


def quantized(
    value: Expr,
    scale: np.ndarray | Scale,
    zero: np.ndarray | Scale,
    axis: int,
    ndim: int,
    dtype: str,
) -> Expr:
    """Compute round(value / scale) + zero point, saturated."""
    real = plain("divide", value, _along(scale, axis, ndim, "float32"))
    shifted = plain("add", plain("round", real), _along(zero, axis, ndim, "float32"))
    low, high = limits(dtype)
    return plain("cast", plain("clip", shifted, a_min=low, a_max=high), dtype=dtype)


def dequantized(
    value: Expr,
    scale: np.ndarray | Scale,
    zero: np.ndarray | Scale,
    axis: int,
    ndim: int,
    dtype: str = "float32",
) -> Expr:
    """Compute scale * (value - zero point)."""
    wide = plain("cast", value, dtype="int32")
    shifted = plain("subtract", wide, _along(zero, axis, ndim, "int32"))
    real = plain("cast", shifted, dtype="float32")
    result = plain("multiply", real, _along(scale, axis, ndim, "float32"))
    return result if dtype in ("", "float32") else plain("cast", result, dtype=dtype)


def without_zero_point(value: Expr, zero: np.ndarray) -> Expr:
    """Compute value - zero point in int32."""
    wide = plain("cast", value, dtype="int32")
    return plain("subtract", wide, const(zero, "int32")) if zero.any() else wide


def per_tensor(values: np.ndarray) -> np.ndarray:
    """Return a scale or zero point that must be one value for the whole tensor.

    Raises:
        UnsupportedOp: Several values.
    """
    if values.size != 1:
        raise UnsupportedOp(f"{values.size} scales or zero points for a whole tensor", "one")
    return values.reshape(())


def fixed_point(multiplier: float) -> tuple[int, int]:
    """Convert a factor to a 31-bit fraction and an exponent of two.

    One below 2^-32 is 0: it takes every int32 to less than a half. Shifts stay below 63 bits.

    Raises:
        UnsupportedOp: A factor that is not finite (a scale of zero) or too large.
    """
    if not math.isfinite(multiplier) or abs(multiplier) >= 2**31:
        raise UnsupportedOp(f"scales with a ratio of {multiplier}", "finite ones over zero")
    if abs(multiplier) < 2**-32:
        return 0, 0
    fraction, exponent = math.frexp(multiplier)
    rounded = math.floor(abs(fraction) * 2**31 + 0.5)
    if rounded == 2**31:
        rounded, exponent = rounded // 2, exponent + 1
    return int(math.copysign(rounded, fraction)), exponent


def rescaled(value: Expr, factors: np.ndarray, rounding: str) -> Expr:
    """Multiply an int32 value by real factors, rounding to int32.

    Args:
        value: The int32 expression.
        factors: Factors of a shape that broadcasts.
        rounding: "TONEAREST" rounds halves away from zero, anything else rounds them up.
    """
    pairs = [fixed_point(float(f)) for f in factors.reshape(-1)]
    fractions = np.array([p[0] for p in pairs], "int64").reshape(factors.shape)
    shifts = np.array([p[1] for p in pairs], "int64").reshape(factors.shape)
    return multiplied(value, fractions, shifts, rounding)


def multiplied(value: Expr, fractions: np.ndarray, shifts: np.ndarray, rounding: str) -> Expr:
    """Multiply an int32 value by fractions * 2 ** (shifts - 31), rounding to int32.

    Args:
        value: The int32 expression.
        fractions, shifts: Integers of shapes that broadcast.
        rounding: As `rescaled`.
    """
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


def rescaled_by_reals(value: Expr, factors: np.ndarray, rounding: str, dtype: str) -> Expr:
    """Multiply an int32 value by real factors in floating point; see `rescaled`."""
    real = plain("multiply", plain("cast", value, dtype=dtype), const(factors, dtype))
    if rounding == "TONEAREST":
        real = plain("round", real)
    else:
        real = plain("floor", plain("add", real, const(0.5, dtype)))
    return plain("cast", real, dtype="int32")


def requantized(
    value: Expr,
    quantization: Sequence[np.ndarray],
    axis: int,
    ndim: int,
    rounding: str = "",
    compute_dtype: str = "",
) -> Expr:
    """Change scale and zero point; the int32 result is not saturated.

    Args:
        value: The quantized expression.
        quantization: Scale and zero point of the value, then those of the result.
        axis: The axis of a scale or zero point per channel.
        ndim: The number of dimensions of the value.
        rounding: As `rescaled`; "" is that of CONFIG.
        compute_dtype: "int64", "float32" or "float64"; "" is that of CONFIG.
    """
    scale, zero, out_scale, out_zero = quantization
    result = without_zero_point(value, along(zero, axis, ndim))
    step = float(per_tensor(out_scale))
    if step == 0:
        raise UnsupportedOp("scales with a ratio to zero", "a scale over zero")
    factors = scale.astype("float64") / step
    if scale.size != 1 or factors.reshape(()) != 1:
        factors = along(factors, axis, ndim)
        current = CONFIG.get()
        rounding, compute_dtype = rounding or current[0], compute_dtype or current[1]
        if compute_dtype == "int64":
            result = rescaled(result, factors, rounding)
        else:
            result = rescaled_by_reals(result, factors, rounding, compute_dtype)
    if out_zero.any():
        result = plain("add", result, const(per_tensor(out_zero), "int32"))
    return result

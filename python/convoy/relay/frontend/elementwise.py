"""Elementwise functions whose edge cases importers share."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dtype_of, is_float, rank, scalar_like, value_of
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def round_even(data: Expr) -> Expr:
    """Round halves to even; integers stay."""
    if not is_float(data):
        return data
    down = R.floor(data)
    rest = R.subtract(data, down)
    half, one, two = (scalar_like(n, data) for n in (0.5, 1, 2))
    odd = R.not_equal(R.multiply(R.floor(R.divide(down, two)), two), down)
    up = R.logical_or(R.greater(rest, half), R.logical_and(R.equal(rest, half), odd))
    return R.where(up, R.add(down, one), down)


def truncated_division(left: Expr, right: Expr) -> Expr:
    """Divide; integers round to zero."""
    return R.divide(left, right) if is_float(left) else R.trunc_divide(left, right)


def floor_modulo(left: Expr, right: Expr) -> Expr:
    """Take the remainder that has the sign of the divisor."""
    if not is_float(left):
        return R.floor_mod(left, right)
    return R.subtract(left, R.multiply(R.floor(R.divide(left, right)), right))


def power(base: Expr, exponent: Expr) -> Expr:
    """Raise to a power, in the dtype of the base."""
    value = value_of(exponent)
    if value is not None and value.size == 1 and value.ndim <= rank(base) and value.item() == 2:
        return R.multiply(base, base)
    dtype = dtype_of(base)
    if is_float(base):
        return R.power(base, cast(exponent, dtype))
    return R.cast(R.power(cast(base, "float64"), cast(exponent, "float64")), dtype)


def is_inf(data: Expr, positive: object = True, negative: object = True) -> Expr:
    """Test for infinities of one sign or of both."""
    if not is_float(data):
        return R.cast(R.zeros_like(data), "bool")
    found = R.isinf(data)
    if positive and negative:
        return found
    zero = scalar_like(0, data)
    if not positive and not negative:
        return R.logical_and(found, R.logical_not(found))
    sign = R.greater(data, zero) if positive else R.less(data, zero)
    return R.logical_and(found, sign)


def softplus(data: Expr, beta: float = 1.0, threshold: float | None = None) -> Expr:
    """Compute log(1 + exp(beta x)) / beta without overflow."""
    scaled = data if beta == 1 else R.multiply(data, scalar_like(beta, data))
    positive = nn.relu(scaled)
    rest = R.log(R.add(scalar_like(1, data), R.exp(R.negative(R.abs(scaled)))))
    result = R.add(positive, rest)
    if beta != 1:
        result = R.divide(result, scalar_like(beta, data))
    if threshold is None:
        return result
    return R.where(R.greater(scaled, scalar_like(threshold, data)), data, result)


def elu(data: Expr, alpha: float = 1.0, gamma: float = 1.0, input_scale: float = 1.0) -> Expr:
    """Compute gamma * (x if x > 0 else alpha * (exp(input_scale * x) - 1))."""
    zero, one = scalar_like(0, data), scalar_like(1, data)
    low = R.minimum(data, zero)
    if input_scale != 1:
        low = R.multiply(low, scalar_like(input_scale, data))
    curve = R.multiply(scalar_like(alpha, data), R.subtract(R.exp(low), one))
    result = R.where(R.greater(data, zero), data, curve)
    return result if gamma == 1 else R.multiply(scalar_like(gamma, data), result)


def gelu(data: Expr, approximate: bool = False) -> Expr:
    """Compute x * Phi(x), or its approximation by tanh."""
    one, half = scalar_like(1, data), scalar_like(0.5, data)
    if approximate:
        cube = R.multiply(R.multiply(data, data), data)
        inner = R.add(data, R.multiply(scalar_like(0.044715, data), cube))
        curve = R.tanh(R.multiply(scalar_like(np.sqrt(2 / np.pi), data), inner))
    else:
        curve = R.erf(R.multiply(data, scalar_like(np.sqrt(0.5), data)))
    return R.multiply(R.multiply(half, data), R.add(one, curve))


def hard_sigmoid(data: Expr, alpha: float, beta: float) -> Expr:
    """Compute clip(alpha * x + beta, 0, 1)."""
    line = R.add(R.multiply(data, scalar_like(alpha, data)), scalar_like(beta, data))
    return R.clip(line, 0.0, 1.0)


def prelu(data: Expr, slope: Expr) -> Expr:
    """Multiply negative values by a slope that broadcasts."""
    return R.where(R.less(data, scalar_like(0, data)), R.multiply(data, slope), data)


def silu(data: Expr) -> Expr:
    """Compute x * sigmoid(x)."""
    return R.multiply(data, R.sigmoid(data))

"""Values of the activations of an epilogue in float64."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray

erf = np.vectorize(math.erf, otypes=[np.float64])


def activate(name: str, x: Array, alpha: float = 0.0, low: float = 0.0, high: float = 0.0) -> Array:
    """Return the values of an activation.

    Args:
        name: One of :data:`.activation.ACTIVATIONS`.
        x: Numbers, float64.
        alpha: Of ``leaky_relu`` and ``elu``.
        low: The lower bound of ``clip``.
        high: The upper bound of ``clip``.
    """
    if name == "relu":
        return np.maximum(x, 0)
    if name == "clip":
        return np.clip(x, low, high)
    if name == "leaky_relu":
        return np.where(x < 0, alpha * x, x)
    if name == "elu":
        return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)
    if name == "hardswish":
        return x * np.clip(x / 6 + 0.5, 0, 1)
    if name == "gelu":
        return x * (0.5 + 0.5 * erf(x * 0.5**0.5))
    if name == "gelu_tanh":
        return x * (0.5 + 0.5 * np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))
    if name == "tanh":
        return np.tanh(x)
    if name in ("mish", "softplus"):
        softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        return softplus if name == "softplus" else x * np.tanh(softplus)
    if name in ("sigmoid", "silu"):
        small = np.exp(-np.abs(x))
        sigmoid = np.where(x < 0, small, 1) / (1 + small)
        return sigmoid if name == "sigmoid" else x * sigmoid
    return x

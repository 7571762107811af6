"""Values of the activations of an epilogue in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray

erf = np.vectorize(math.erf, otypes=[np.float64])


def _tanh_gelu(x: Array) -> Array:
    return x * (0.5 + 0.5 * np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


#: Those without parameters.
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * (0.5 + 0.5 * erf(x * 0.5**0.5)),
    "gelu_tanh": _tanh_gelu,
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "tanh": np.tanh,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softplus": _softplus,
}


def activate(name: str, x: Array, alpha: float = 0.0, low: float = 0.0, high: float = 0.0) -> Array:
    """Return the values of an activation.

    Args:
        name: One of :data:`.activation.ACTIVATIONS`.
        x: Numbers, float64.
        alpha: Of ``leaky_relu`` and ``elu``.
        low: The lower bound of ``clip``.
        high: The upper bound of ``clip``.

    Raises:
        KeyError: Another name.
    """
    if name == "clip":
        return np.clip(x, low, high)
    if name == "leaky_relu":
        return np.where(x < 0, alpha * x, x)
    if name == "elu":
        return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)
    return _FUNCTIONS[name](x)

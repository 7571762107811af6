"""Activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, rank, scalar_like
from convoy.relay.frontend.elementwise import elu, gelu, hard_sigmoid, prelu, silu, softplus
from convoy.relay.frontend.keras.registry import Layer, Tensor, convert
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def _softsign(data: Expr) -> Expr:
    return R.divide(data, R.add(scalar_like(1, data), R.abs(data)))


def hard_sigmoid_of(layer: Layer, data: Expr) -> Expr:
    """Compute the hard sigmoid, whose slope changed with Keras 3."""
    slope = 1 / 6 if type(layer.layer).__module__.startswith("keras.src") and _is_keras_3() else 0.2
    return hard_sigmoid(data, slope, 0.5)


def _is_keras_3() -> bool:
    import keras

    return int(keras.__version__.partition(".")[0]) >= 3


def _functions() -> dict[str, Callable[..., Any]]:
    """Return activations by their names in configs."""
    return {
        "linear": lambda x: x, "relu": nn.relu, "sigmoid": R.sigmoid, "tanh": R.tanh,
        "softplus": softplus, "softsign": _softsign, "elu": elu, "exponential": R.exp,
        "selu": lambda x: elu(x, 1.6732632423543772, 1.0507009873554805), "gelu": gelu,
        "swish": silu, "silu": silu, "relu6": lambda x: R.clip(x, 0.0, 6.0),
        "leaky_relu": lambda x: nn.leaky_relu(x, 0.2),
        "mish": lambda x: R.multiply(x, R.tanh(softplus(x))),
        "hard_silu": lambda x: R.multiply(x, hard_sigmoid(x, 1 / 6, 0.5)),
        "hard_swish": lambda x: R.multiply(x, hard_sigmoid(x, 1 / 6, 0.5)),
    }  # fmt: skip


_FUNCTIONS = _functions()


def activate(layer: Layer, given: Any, data: Expr, axis: int = -1) -> Expr:
    """Apply an activation by its name in a config.

    Args:
        layer: The layer that has it, for errors.
        given: The name; a config of a registered function; None for none.
        data: What to apply it to.
        axis: The axis of channels.

    Raises:
        UnsupportedOp: Another activation.
    """
    name = given.get("config", given.get("class_name")) if isinstance(given, dict) else given
    if name is None:
        return data
    if name in ("softmax", "log_softmax"):
        return (nn.softmax if name == "softmax" else nn.log_softmax)(data, axis=axis)
    if name == "hard_sigmoid":
        return hard_sigmoid_of(layer, data)
    if name not in _FUNCTIONS:
        raise layer.error(f"activation {given!r}", ", ".join(_FUNCTIONS))
    return _FUNCTIONS[name](data)


@convert("Activation")
def activation(layer: Layer) -> Tensor:
    data = layer.x
    axis = 1 if data.first else rank(data.expr) - 1
    return data.like(activate(layer, layer.config["activation"], data.expr, axis))


@convert("ReLU")
def relu(layer: Layer) -> Tensor:
    """Clip from below at a threshold, with a slope there, and from above."""
    config, data = layer.config, layer.x.expr
    slope, bound = config.get("negative_slope") or 0.0, float(config.get("threshold") or 0.0)
    most = config.get("max_value")
    if bound == 0 and slope == 0:
        result = nn.relu(data) if most is None else R.clip(data, 0.0, float(most))
        return layer.x.like(result)
    limit = scalar_like(bound, data)
    below = R.multiply(scalar_like(slope, data), R.subtract(data, limit))
    above = data if most is None else R.minimum(data, scalar_like(most, data))
    return layer.x.like(R.where(R.less(data, limit), below, above))


@convert("LeakyReLU")
def leaky_relu(layer: Layer) -> Tensor:
    slope = layer.config.get("negative_slope", layer.config.get("alpha", 0.3))
    return layer.x.like(nn.leaky_relu(layer.x.expr, float(np.asarray(slope))))


@convert("PReLU")
def convert_prelu(layer: Layer) -> Tensor:
    return Tensor(prelu(layer.x.last(), layer.param("alpha", layer.weights[0])))


@convert("ELU")
def convert_elu(layer: Layer) -> Tensor:
    return layer.x.like(elu(layer.x.expr, float(np.asarray(layer.config["alpha"]))))


@convert("ThresholdedReLU")
def thresholded(layer: Layer) -> Tensor:
    data = layer.x.expr
    bound = const(np.asarray(layer.config["theta"], "float32"))
    return layer.x.like(R.where(R.greater(data, bound), data, scalar_like(0, data)))


@convert("Softmax")
def softmax(layer: Layer) -> Tensor:
    return Tensor(nn.softmax(layer.x.last(), axis=layer.config["axis"]))


@convert(
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout",
    "GaussianNoise", "AlphaDropout", "ActivityRegularization", "Identity",
)  # fmt: skip
def identity(layer: Layer) -> Tensor:
    return layer.x

"""Activations, softmax, losses of inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dims, infer_shape, rank, reshape, scalar_like
from convoy.relay.frontend.elementwise import elu, gelu, hard_sigmoid, prelu, silu, softplus
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def _softsign(data: Expr) -> Expr:
    return R.divide(data, R.add(scalar_like(1, data), R.abs(data)))


def _log_sigmoid(data: Expr) -> Expr:
    return R.negative(softplus(R.negative(data)))


def _simple() -> dict[str, Callable[..., Any]]:
    """Return activations without parameters."""
    return {
        "relu": nn.relu,
        "relu6": lambda x: R.clip(x, 0.0, 6.0),
        "silu": silu,
        "mish": lambda x: R.multiply(x, R.tanh(softplus(x))),
        "hardswish": lambda x: R.multiply(x, hard_sigmoid(x, 1 / 6, 0.5)),
        "hardsigmoid": lambda x: hard_sigmoid(x, 1 / 6, 0.5),
        "softsign": _softsign,
        "log_sigmoid": _log_sigmoid,
        "tanhshrink": lambda x: R.subtract(x, R.tanh(x)),
        "selu": lambda x: elu(x, 1.6732632423543772, 1.0507009873554805),
    }


_SIMPLE = _simple()


@convert(*_SIMPLE)
def simple(call: Call) -> Expr:
    return _SIMPLE[call.short](call["self"])


@convert("leaky_relu")
def leaky_relu(call: Call) -> Expr:
    return nn.leaky_relu(call["self"], call.get("negative_slope", 0.01))


@convert("prelu", "_prelu_kernel")
def convert_prelu(call: Call) -> Expr:
    """Multiply negative values by one slope, or by that of their channel (axis 1)."""
    data, slope = call["self"], call["weight"]
    count = infer_shape(slope)[0] if rank(slope) == 1 else 0
    if count > 1:
        slope = reshape(slope, (count, *(1,) * (rank(data) - 2)))
    return prelu(data, slope)


@convert("elu", "celu")
def convert_elu(call: Call) -> Expr:
    alpha = call.get("alpha", 1.0)
    if call.short == "celu":
        return elu(call["self"], alpha, 1.0, 1 / alpha)
    return elu(call["self"], alpha, call.get("scale", 1.0), call.get("input_scale", 1.0))


@convert("gelu")
def convert_gelu(call: Call) -> Expr:
    return gelu(call["self"], call.get("approximate", "none") == "tanh")


@convert("softplus")
def convert_softplus(call: Call) -> Expr:
    return softplus(call["self"], call.get("beta", 1.0), call.get("threshold", 20.0))


@convert("threshold")
def threshold(call: Call) -> Expr:
    data = call["self"]
    bound, value = scalar_like(call.get("threshold"), data), scalar_like(call.get("value"), data)
    return R.where(R.greater(data, bound), data, value)


@convert("hardshrink", "softshrink")
def shrink(call: Call) -> Expr:
    data, zero = call["self"], scalar_like(0, call["self"])
    bound = scalar_like(call.get("lambd", 0.5), data)
    outside = R.greater(R.abs(data), bound)
    kept = data
    if call.short == "softshrink":
        kept = R.subtract(data, R.multiply(R.sign(data), bound))
    return R.where(outside, kept, zero)


@convert("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")
def softmax(call: Call) -> Expr:
    function = nn.log_softmax if "log" in call.short else nn.softmax
    dtype = call.dtype()
    data = call["self"] if dtype is None else cast(call["self"], dtype)
    return function(data, axis=call.axis())


@convert("glu")
def glu(call: Call) -> Expr:
    first, second = R.split(call["self"], 2, axis=call.axis())
    return R.multiply(first, R.sigmoid(second))


@convert("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(call: Call) -> Expr:
    """Give the input back, as inference does."""
    if call.get("train") and call.get("p"):
        call.warn_of_training()
    return call["input" if "input" in call.args else "self"]


@convert("native_dropout")
def native_dropout(call: Call) -> list[Expr]:
    if call.get("train") and call.get("p"):
        call.warn_of_training()
    return [call["input"], R.ones(dims(call["input"]), "bool")]

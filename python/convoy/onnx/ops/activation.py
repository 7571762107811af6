"""Activations."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter


@converter("Relu")
def relu(call: Call) -> Value:
    return call.make("nn.relu", call.x())


@converter("LeakyRelu")
def leaky_relu(call: Call) -> Value:
    return call.make("nn.leakyrelu", call.x(), float(call.attrs.get("alpha", 0.01)))


@converter("PRelu")
def prelu(call: Call) -> Value:
    """The slope broadcasts to the data; a vector is along the last axis."""
    slope = call.value(1)
    if call.version < 7 and call.rank(1) == 1 and call.shape(1) != (1,):
        slope = call.reshape(slope, (-1, *(1,) * (call.rank() - 2)))
    negative = call.do("Less", call.value(0), call.const(0))
    return call.do("Where", negative, call.do("Mul", call.value(0), slope), call.value(0))


@converter("Clip")
def clip(call: Call) -> Value:
    """Bounds are attributes before opset 11; one that is NaN or left out is none."""
    x = call.value(0)
    if call.version < 11:
        bounds = [call.attrs.get("min"), call.attrs.get("max")]
        low, high = (None if bound is None else call.const(bound) for bound in bounds)
    else:
        low, high = (call.inputs[i] if call.has(i) else None for i in (1, 2))
    low, high = (None if _is_nan(bound) else bound for bound in (low, high))
    if (
        isinstance(low, np.ndarray)
        and isinstance(high, np.ndarray)
        and call.dtype().startswith(("float", "bfloat"))
        and low.size == high.size == 1
        and low.item() <= high.item()
    ):
        return call.make("clip", call.x(), float(low.item()), float(high.item()))
    for op, bound in (("Max", low), ("Min", high)):
        if bound is not None:
            if isinstance(bound, np.ndarray) and bound.size == 1:
                bound = bound.reshape(())
            x = call.do(op, x, bound)
    return x


def _is_nan(bound: Value) -> bool:
    if not isinstance(bound, np.ndarray) or bound.size != 1:
        return False
    return bound.dtype.kind in "fV" and bool(np.isnan(bound.astype("float64").item()))


@converter("Softplus")
def softplus(call: Call) -> Value:
    """log(1 + exp(x)), written so that exp does not overflow."""
    zero = call.const(0)
    large = call.do("Max", call.value(0), zero)
    small = call.do("Exp", call.do("Neg", call.do("Abs", call.value(0))))
    return call.do("Add", large, call.do("Log", call.do("Add", small, call.const(1))))


@converter("ParametricSoftplus", "ScaledTanh")
def scaled(call: Call) -> Value:
    """alpha * f(beta * x)."""
    function = {"ParametricSoftplus": "Softplus", "ScaledTanh": "Tanh"}[call.op]
    inner = call.do(function, call.do("Mul", call.value(0), call.const(call.attrs["beta"])))
    return call.do("Mul", inner, call.const(call.attrs["alpha"]))


@converter("ThresholdedRelu")
def thresholded_relu(call: Call) -> Value:
    above = call.do("Greater", call.value(0), call.const(call.attrs.get("alpha", 1.0)))
    return call.do("Where", above, call.value(0), call.const(0))


@converter("Affine")
def affine(call: Call) -> Value:
    scaled = call.do("Mul", call.value(0), call.const(call.attrs.get("alpha", 1.0)))
    return call.do("Add", scaled, call.const(call.attrs.get("beta", 0.0)))


@converter("Mish")
def mish(call: Call) -> Value:
    """x * tanh(log(1 + exp(x))), in terms of exp alone: logarithms near 0 lose digits."""
    x = call.value(0)
    power = call.do("Exp", call.do("Min", x, call.const(10)))
    n = call.do("Mul", power, call.do("Add", power, call.const(2)))
    ratio = call.do("Div", n, call.do("Add", n, call.const(2)))
    return call.do("Mul", x, ratio)


@converter("Gelu")
def gelu(call: Call) -> Value:
    if call.attrs.get("approximate", "none") == "tanh":
        return call.make("nn.gelu_tanh", call.x())
    return call.make("nn.gelu", call.x())


@converter("HardSigmoid")
def hard_sigmoid(call: Call) -> Value:
    alpha, beta = (float(call.attrs.get(n, d)) for n, d in (("alpha", 0.2), ("beta", 0.5)))
    line = call.do("Add", call.do("Mul", call.value(0), call.const(alpha)), call.const(beta))
    return call.do("Clip", line, call.const(0), call.const(1))


@converter("HardSwish")
def hard_swish(call: Call) -> Value:
    gate = call.do("HardSigmoid", call.value(0), alpha=1 / 6, beta=0.5)
    return call.do("Mul", call.value(0), gate)


@converter("Elu", "Celu", "Selu")
def elu(call: Call) -> Value:
    """gamma * x above zero, gamma * alpha * (exp(x / scale) - 1) below."""
    defaults = {"Elu": 1.0, "Celu": 1.0, "Selu": 1.67326319217681884765625}
    alpha = float(call.attrs.get("alpha", defaults[call.op]))
    gamma = float(call.attrs.get("gamma", 1.05070102214813232421875)) if call.op == "Selu" else 1.0
    x = call.value(0)
    below = call.do("Min", x, call.const(0))
    if call.op == "Celu":
        below = call.do("Div", below, call.const(alpha))
    below = call.do("Sub", call.do("Exp", below), call.const(1))
    below = call.do("Mul", below, call.const(alpha))
    result = call.do("Add", call.do("Max", x, call.const(0)), below)
    return result if gamma == 1.0 else call.do("Mul", result, call.const(gamma))


@converter("Shrink")
def shrink(call: Call) -> Value:
    bias, lambd = float(call.attrs.get("bias", 0.0)), float(call.attrs.get("lambd", 0.5))
    x, zero = call.value(0), call.const(0)
    above = call.do("Where", call.do("Greater", x, call.const(lambd)),
                    call.do("Sub", x, call.const(bias)), zero)  # fmt: skip
    below = call.do("Less", x, call.const(-lambd))
    return call.do("Where", below, call.do("Add", x, call.const(bias)), above)


@converter("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> Value:
    """Before opset 13 over all axes from ``axis`` on, from then on over this one."""
    x, old = call.value(0), call.version < 13
    axis = call.axis(1 if old else -1)
    if old:
        x = call.do("Flatten", x, axis=axis)
        axis = 1
    if call.op == "Hardmax":
        best = call.do("ArgMax", x, axis=axis, keepdims=0)
        size = call.do("Shape", x)[axis]
        values = np.array([0, 1]).astype(call.const(0).dtype)
        result = call.do("OneHot", best, np.array(size), values, axis=axis)
    else:
        op = "nn.softmax" if call.op == "Softmax" else "nn.log_softmax"
        result = call.make(op, call.expr(x), axis)
    return call.reshape(result, call.shape()) if old else result


@converter("Dropout")
def dropout(call: Call) -> Value:
    """The identity: in inference nothing is dropped."""
    ratio, training = call.array(1), call.array(2)
    if call.has(2) and (training is None or training.any()):
        drops = ratio is None or ratio.item() != 0 if call.has(1) else True
        if drops:
            raise call.unsupported("in training mode, which draws numbers", "inference")
    if call.outputs == 1:
        return call.inputs[0]
    mask = np.ones(call.shape(), "bool" if call.version >= 10 else call.const(0).dtype)
    return call.inputs[0], mask

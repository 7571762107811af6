"""``convoy.activation_backward``: dy times the derivative of an activation at its input.

One operator for all activations, so that kernels that compute that input anyway, such as the
gradient of a norm before the activation, take the activation's gradient in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import relax, te, tirx

from ..graph.expr import attr_fields, dtype_of
from .registration import NAMESPACE, make_call, register_op

ACTIVATION_BACKWARD = NAMESPACE + "activation_backward"


def activation_backward(
    dy: relax.Expr, x: relax.Expr, activation: str, parameters: Sequence[float] = ()
) -> relax.Call:
    """The gradient of ``activation(x)``, one of ``SLOPES``, with its parameters."""
    return make_call(
        "activation_backward", [dy, x],
        activation=activation, parameters=[float(value) for value in parameters],
    )  # fmt: skip


def through(dy: tirx.Expr, x: tirx.Expr, activation: str, parameters: Sequence[float]) -> tirx.Expr:
    """One element of the gradient, in float32; ``dy`` itself without an activation."""
    return SLOPES[activation](dy, x, *map(float, parameters)) if activation else dy


def _const(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def _sigmoid(x: tirx.Expr) -> tirx.Expr:
    return _const(1.0) / (_const(1.0) + tirx.exp(-x))


def _where(condition: tirx.Expr, value: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
    return tirx.Select(condition, value, other)


def _relu(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    return _where(x > _const(0.0), dy, _const(0.0))


def _clip(dy: tirx.Expr, x: tirx.Expr, low: float, high: float) -> tirx.Expr:
    """1 inside and on the bounds, as PyTorch's clamp."""
    inside = tirx.all(x >= _const(low), x <= _const(high))
    return _where(inside, dy, _const(0.0))


def _leakyrelu(dy: tirx.Expr, x: tirx.Expr, alpha: float) -> tirx.Expr:
    return _where(x > _const(0.0), dy, dy * _const(alpha))


def _silu(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    share = _sigmoid(x)
    return dy * share * (_const(1.0) + x * (_const(1.0) - share))


def _hardswish(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    line = x * _const(1 / 3) + _const(0.5)
    inside = _where(x > _const(3.0), _const(1.0), line)
    return _where(x < _const(-3.0), _const(0.0), dy * inside)


def _elu(dy: tirx.Expr, x: tirx.Expr, alpha: float) -> tirx.Expr:
    return _where(x > _const(0.0), dy, dy * _const(alpha) * tirx.exp(x))


def _mish(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """With t = tanh(log(1 + exp(x))): t + x sigmoid(x) (1 - t^2)."""
    power = tirx.exp(te.min(x, _const(20.0)))
    n = power * (power + _const(2.0))
    t = n / (n + _const(2.0))
    return dy * (t + x * _sigmoid(x) * (_const(1.0) - t * t))


def _gelu(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """Phi(x) + x phi(x), with Phi and phi of the normal distribution."""
    share = _const(0.5) * (_const(1.0) + tirx.erf(x * _const(0.5**0.5)))
    return dy * (share + x * _const((2 * math.pi) ** -0.5) * tirx.exp(_const(-0.5) * x * x))


def _gelu_tanh(dy: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """Differentiate x (1 + t) / 2 with t = tanh(k (x + c x^3))."""
    k, c = (2 / math.pi) ** 0.5, 0.044715
    t = tirx.tanh(x * (_const(k) + _const(k * c) * x * x))
    rise = (_const(1.0) - t * t) * (_const(k) + _const(3 * k * c) * x * x)
    return dy * _const(0.5) * (_const(1.0) + t + x * rise)


#: (dy, x, parameters...) to dy times the derivative, by activation.
SLOPES: dict[str, Callable[..., tirx.Expr]] = {
    "relu": _relu, "clip": _clip, "leakyrelu": _leakyrelu, "silu": _silu, "elu": _elu,
    "hardswish": _hardswish, "mish": _mish, "gelu": _gelu, "gelu_tanh": _gelu_tanh,
}  # fmt: skip


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return call.args[0].ty


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype, attrs = dtype_of(call), attr_fields(call.attrs)

    def loops(dy: te.Tensor, x: te.Tensor) -> te.Tensor:
        def element(*i: tirx.Var) -> tirx.Expr:
            values = (tensor(*i).astype("float32") for tensor in (dy, x))
            return through(*values, **attrs).astype(dtype)

        return te.compute(x.shape, element, name="through")

    return builder.call_te(
        loops, *call.args, primfunc_name_hint=f"{attrs['activation']}_backward",
        primfunc_attrs={"op_pattern": 0},
    )  # fmt: skip


register_op(
    "activation_backward", "Gradient of an activation.", _infer, _legalize, activation_backward
)

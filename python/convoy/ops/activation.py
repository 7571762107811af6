"""Activations that TVM has no operator for: ``convoy.hardswish``, ``convoy.elu``, ``convoy.mish``,
and ``convoy.gelu16``, a gelu whose result is going to be rounded to 16 bits.

The normal form writes an activation as one operator, however the model spelled it, so that patterns
and kernels need not know the spellings.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx

from ..graph.expr import attr_fields, dtype_of
from .registration import NAMESPACE, make_call, register_op

HARDSWISH, ELU, MISH = (NAMESPACE + name for name in ("hardswish", "elu", "mish"))
#: log2(Phi(-t)) as a polynomial of t from 0 to 6, its largest exponent first: gelu below zero is
#: within 3e-5 of itself, above zero nearer. The same in ``codegen/cutlass/gelu16.cuh``.
_LOG_PHI = (2.6263e-5, -6.6502e-4, 7.526374e-3, -5.2118286e-2, -0.46007174, -1.1507674, -1.0)
_LOG_PHI_END = 6.0


def hardswish(x: relax.Expr) -> relax.Call:
    """``x * clip(x + 3, 0, 6) / 6``."""
    return make_call("hardswish", [x])


def elu(x: relax.Expr, alpha: float = 1.0) -> relax.Call:
    """``x`` above zero, ``alpha * (exp(x) - 1)`` below."""
    return make_call("elu", [x], alpha=float(alpha))


def mish(x: relax.Expr) -> relax.Call:
    """``x * tanh(log(1 + exp(x)))``."""
    return make_call("mish", [x])


def gelu16(x: relax.Expr) -> relax.Call:
    """``x * Phi(x)``, exact enough for results of 16 bits."""
    return make_call("gelu16", [x])


def _number(value: float, like: tirx.Expr) -> tirx.Expr:
    return tirx.const(value, str(like.ty.dtype))


def _hardswish(x: tirx.Expr) -> tirx.Expr:
    line = x * _number(1 / 6, x) + _number(0.5, x)
    return x * te.max(te.min(line, _number(1.0, x)), _number(0.0, x))


def _elu(x: tirx.Expr, alpha: float) -> tirx.Expr:
    """Near zero a series: ``exp(x) - 1`` would lose the digits."""
    one = _number(1.0, x)
    series = x * (one + x * (_number(0.5, x) + x * _number(1 / 6, x)))
    below = tirx.Select(x > _number(-1 / 64, x), series, tirx.exp(x) - one)
    return tirx.Select(x >= _number(0.0, x), x, _number(alpha, x) * below)


def _mish(x: tirx.Expr) -> tirx.Expr:
    """With ``n = e (e + 2)`` and ``e = exp(x)``, ``tanh(log(1 + e))`` is ``n / (n + 2)``."""
    power = tirx.exp(te.min(x, _number(20.0, x)))
    n = power * (power + _number(2.0, x))
    return x * (n / (n + _number(2.0, x)))


def _gelu16(x: tirx.Expr) -> tirx.Expr:
    """``max(x, 0) - t Phi(-t)`` with ``t = |x|``."""
    t = te.min(tirx.abs(x), _number(_LOG_PHI_END, x))
    exponent = _number(_LOG_PHI[0], x)
    for coefficient in _LOG_PHI[1:]:
        exponent = exponent * t + _number(coefficient, x)
    half = x * _number(0.5, x)
    return half + tirx.abs(half) - t * tirx.exp2(exponent)


def _softplus(x: tirx.Expr, beta: float, threshold: float) -> tirx.Expr:
    """``log(1 + exp(beta x)) / beta``, ``x`` where ``beta x`` is above the threshold.

    ``log(1 + t)`` loses the digits of a small ``t``: it is ``2 artanh(t / (t + 2))``, a series.
    """
    scaled = x * _number(beta, x)
    power = tirx.exp(-tirx.abs(scaled))
    part = power / (power + _number(2.0, x))
    series = _number(1 / 15, x)
    for divisor in range(13, 0, -2):
        series = series * part * part + _number(1 / divisor, x)
    value = te.max(scaled, _number(0.0, x)) + _number(2.0, x) * part * series
    return tirx.Select(scaled > _number(threshold, x), x, value * _number(1 / beta, x))


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return call.args[0].ty


def _loops(name: str, value: Callable[..., tirx.Expr]) -> Callable[..., relax.Expr]:
    """Element by element, in float32, rounded once."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dtype, attrs = dtype_of(call), attr_fields(call.attrs)

        def loops(x: te.Tensor) -> te.Tensor:
            return te.compute(
                x.shape,
                lambda *i: value(x(*i).astype("float32"), **attrs).astype(dtype),
                name=name,
            )

        return builder.call_te(
            loops, *call.args, primfunc_name_hint=name, primfunc_attrs={"op_pattern": 0}
        )

    return legalize


for _name, _value, _make in (
    ("hardswish", _hardswish, hardswish),
    ("elu", _elu, elu),
    ("mish", _mish, mish),
    ("gelu16", _gelu16, gelu16),
):
    register_op(_name, f"Activation {_name}.", _infer, _loops(_name, _value), _make)

#: Legalization of TVM's operator, whose own has the digits of ``1 + exp(x)`` alone.
legalize_softplus = _loops("softplus", _softplus)

"""Gradients of elementwise operators that TVM has none for: activations and their parts."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..graph.expr import attr_fields, dtype_of, op_name, shape_of
from .activation_backward import activation_backward
from .gradient import rule_for


def _const(value: float, like: relax.Expr) -> relax.Expr:
    return relax.const(value, dtype_of(like))


def _scaled(expr: relax.Expr, factor: float, like: relax.Expr) -> relax.Expr:
    return op.multiply(expr, _const(factor, like))


def _value(bound: relax.Expr) -> float:
    """A bound of ``clip``, a number of any kind."""
    return float(getattr(bound, "value", bound))


@rule_for("where")
def _where(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Summed over the axes that a value was broadcast along, which TVM's rule leaves."""
    condition, *values = call.args
    zero = _const(0, dy)
    chosen = (op.where(condition, dy, zero), op.where(condition, zero, dy))
    parts = [ctx.emit(part) for part in chosen]
    summed = [
        part if shape_of(value) == shape_of(y) else op.collapse_sum_to(part, shape_of(value))
        for part, value in zip(parts, values, strict=True)
    ]
    return [no_grad(condition), *summed]


@rule_for("clip")
def _clip(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, low, high = call.args
    bounds = [_value(low), _value(high)]
    return [activation_backward(dy, x, "clip", bounds), no_grad(low), no_grad(high)]


@rule_for("nn.leakyrelu")
@rule_for("convoy.elu")
def _with_alpha(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    name = op_name(call).rpartition(".")[2]
    return [activation_backward(dy, call.args[0], name, [attr_fields(call.attrs)["alpha"]])]


@rule_for("nn.silu")
@rule_for("nn.gelu")
@rule_for("nn.gelu_tanh")
@rule_for("convoy.hardswish")
@rule_for("convoy.mish")
def _activation(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [activation_backward(dy, call.args[0], op_name(call).rpartition(".")[2])]


@rule_for("nn.prelu")
def _prelu(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, alpha = call.args
    rank, axis = len(shape_of(x)), int(call.attrs.axis)
    axis += rank if axis < 0 else 0
    slopes = [-1 if i == axis else 1 for i in range(rank)]
    positive = ctx.emit(op.greater(x, _const(0, dy)))
    dx = op.where(positive, dy, op.multiply(dy, op.reshape(alpha, slopes)))
    products = ctx.emit(op.where(positive, op.zeros_like(dy), op.multiply(dy, x)))
    others = [i for i in range(rank) if i != axis or shape_of(alpha) == (1,)]
    return [dx, op.reshape(op.sum(products, others), shape_of(alpha))]


@rule_for("nn.softplus")
def _softplus(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """A sigmoid, which is one beyond the threshold in every arithmetic that convoy compiles."""
    (x,) = call.args
    return [op.multiply(dy, op.sigmoid(_scaled(x, float(call.attrs.beta), x)))]


@rule_for("erf")
def _erf(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    (x,) = call.args
    bell = op.exp(op.negative(op.multiply(x, x)))
    return [op.multiply(dy, _scaled(bell, 2 * math.pi**-0.5, x))]


@rule_for("rsqrt")
def _rsqrt(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [op.multiply(dy, _scaled(op.multiply(y, op.multiply(y, y)), -0.5, y))]


@rule_for("square")
def _square(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [op.multiply(dy, _scaled(call.args[0], 2.0, dy))]


#: Derivatives of functions of one variable, by name: (x, y = f(x), one) -> f'(x).
_DERIVATIVES: dict[str, Callable[[relax.Expr, relax.Expr, relax.Expr], relax.Expr]] = {
    "tan": lambda x, y, one: op.add(one, op.multiply(y, y)),
    "asin": lambda x, y, one: op.rsqrt(op.subtract(one, op.multiply(x, x))),
    "acos": lambda x, y, one: op.negative(op.rsqrt(op.subtract(one, op.multiply(x, x)))),
    "atan": lambda x, y, one: op.divide(one, op.add(one, op.multiply(x, x))),
    "sinh": lambda x, y, one: op.cosh(x),
    "cosh": lambda x, y, one: op.sinh(x),
    "asinh": lambda x, y, one: op.rsqrt(op.add(op.multiply(x, x), one)),
    "acosh": lambda x, y, one: op.rsqrt(op.subtract(op.multiply(x, x), one)),
    "atanh": lambda x, y, one: op.divide(one, op.subtract(one, op.multiply(x, x))),
}


def _derived(name: str) -> None:
    @rule_for(name)
    def rule(
        y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
    ) -> list[relax.Expr]:
        (x,) = call.args
        return [op.multiply(dy, ctx.emit(_DERIVATIVES[name](x, y, _const(1, x))))]


#: Operators whose results do not change with floats among their operands, or are none.
_CONSTANT = """
    floor ceil round sign trunc argmax argmin argsort one_hot bucketize isnan isinf isfinite
    eye_like floor_divide logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
    bitwise_xor bitwise_not left_shift right_shift convoy.uniform grad.no_grad
"""


def _constant(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [no_grad(argument) for argument in call.args]


@rule_for("astype")
def _astype(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Numbers that are integers or truth values do not change with floats."""
    (x,) = call.args
    floats = all(dtype_of(v).startswith(("float", "bfloat")) for v in (x, y))
    return [op.astype(dy, dtype_of(x)) if floats else no_grad(x)]


for _name in _DERIVATIVES:
    _derived(_name)
for _name in _CONSTANT.split():
    rule_for(_name)(_constant)

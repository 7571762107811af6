"""Elementwise operators without attributes: unary, binary, `where`."""

from __future__ import annotations

import math
from collections.abc import Callable

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, te, tirx, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast
from convoy.relay.types import TensorType, Type

# Relax has these under the same names.
_UNARY = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor log logical_not"
    " negative rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
_CLASSIFYING = ["isfinite", "isinf", "isnan"]
_FAST = {"fast_erf": "erf", "fast_exp": "exp", "fast_tanh": "tanh"}
_LOGARITHMS = ["log2", "log10"]

_ARITHMETIC = (  # noqa: SIM905
    "add subtract multiply floor_divide floor_mod power maximum minimum logical_and logical_or"
    " logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()
_COMPARISON = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
_DIVISION = ["divide", "trunc_divide", "mod", "trunc_mod"]


# ---- unary


def _unary(name: str) -> Callable[[Expr], Call]:
    def build(data: Expr) -> Call:
        return make_call(name, data)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Apply `{name}` to each element."
    return build


for _name in (*_UNARY, *_CLASSIFYING, *_FAST, *_LOGARITHMS, "round"):
    builder(_name)(_unary(_name))


@type_rule(*_UNARY, *_FAST, *_LOGARITHMS, "round")
def infer_unary(call: Inputs) -> Type:
    call.count(1)
    return call.tensor(0)


@type_rule(*_CLASSIFYING)
def infer_classifying(call: Inputs) -> Type:
    call.count(1)
    return TensorType(call.tensor(0).shape, "bool")


@converter("negative", "sign")
def convert_negative_and_sign(op: OpCall) -> RelaxExpr:
    """Emit the operator; Relax has neither for unsigned integers, whose negatives wrap around."""
    dtype = op.type(0).dtype
    if not dtype.startswith("uint"):
        return getattr(relax.op, op.name)(op.args[0])
    if op.name == "negative":
        return relax.op.subtract(op.const(0, dtype), op.args[0])
    return relax.op.minimum(op.args[0], op.const(1, dtype))


@converter(*(n for n in _UNARY if n not in ("negative", "sign")), *_CLASSIFYING, *_FAST)
def convert_unary(op: OpCall) -> RelaxExpr:
    return getattr(relax.op, _FAST.get(op.name, op.name))(op.args[0])


@converter("round")
def convert_round(op: OpCall) -> RelaxExpr:
    """Round halves away from zero, as TVM 0.18 does; Relax rounds them to even."""
    if not op.type(0).dtype.startswith(("float", "bfloat")):
        return op.args[0]
    return op.te(_round_away, op.args[0])


def _round_away(x):  # type: ignore[no-untyped-def]
    def at(*i):  # type: ignore[no-untyped-def]
        whole = tirx.trunc(x[i])
        one = tirx.Select(x[i] < 0, tirx.const(-1, x.dtype), tirx.const(1, x.dtype))
        half = tirx.const(0.5, x.dtype)
        return tirx.Select(tirx.abs(x[i] - whole) >= half, whole + one, whole)

    return te.compute(x.shape, at, name="round", tag="elemwise")


@converter(*_LOGARITHMS)
def convert_logarithm(op: OpCall) -> RelaxExpr:
    """Emit log(data) / log(base)."""
    scale = op.const(1 / math.log(int(op.name.removeprefix("log"))), op.type(0).dtype)
    return relax.op.multiply(op.emit(relax.op.log(op.args[0])), scale)


# ---- binary


def _binary(name: str) -> Callable[[Expr, Expr], Call]:
    def build(lhs: Expr, rhs: Expr) -> Call:
        return make_call(name, lhs, rhs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Apply `{name}` to two tensors of one dtype, broadcast together."
    return build


for _name in (*_ARITHMETIC, *_COMPARISON, *_DIVISION):
    builder(_name)(_binary(_name))


@type_rule(*_ARITHMETIC, *_DIVISION)
def infer_arithmetic(call: Inputs) -> TensorType:
    call.count(2)
    lhs, rhs = call.tensor(0), call.tensor(1)
    if lhs.dtype != rhs.dtype:
        raise call.error(f"operands of types {lhs} and {rhs}", "one dtype (use cast)")
    shape = broadcast(lhs.shape, rhs.shape)
    if shape is None:
        raise call.error(f"operands of types {lhs} and {rhs}", "shapes that broadcast")
    return TensorType(shape, lhs.dtype)


@type_rule(*_COMPARISON)
def infer_comparison(call: Inputs) -> Type:
    return TensorType(infer_arithmetic(call).shape, "bool")


@converter(*_ARITHMETIC, *_COMPARISON)
def convert_binary(op: OpCall) -> RelaxExpr:
    a, b = op.args
    return getattr(relax.op, op.name)(a, op.match_dynamic(a, b))


@converter("divide", "trunc_divide")
def convert_divide(op: OpCall) -> RelaxExpr:
    """Emit a division; integers round towards zero, as in C."""
    if op.type(0).dtype.startswith("float") or op.type(0).dtype == "bfloat16":
        quotient = relax.op.divide(op.args[0], op.match_dynamic(*op.args))
        return quotient if op.name == "divide" else relax.op.trunc(op.emit(quotient))
    return op.te(_truncated_quotient, op.args[0], op.match_dynamic(*op.args))


@converter("mod", "trunc_mod")
def convert_mod(op: OpCall) -> RelaxExpr:
    """Emit a remainder with the sign of the dividend, as in C."""
    return op.te(_truncated_remainder, op.args[0], op.match_dynamic(*op.args))


def _truncated_quotient(a, b):  # type: ignore[no-untyped-def]
    return _broadcast_compute(a, b, tirx.truncdiv)


def _truncated_remainder(a, b):  # type: ignore[no-untyped-def]
    if "float" in str(a.dtype):
        return _broadcast_compute(a, b, lambda x, y: x - y * tirx.trunc(x / y))
    return _broadcast_compute(a, b, tirx.truncmod)


def _broadcast_compute(a, b, function):  # type: ignore[no-untyped-def]
    """Apply `function` to two te.Tensors broadcast together."""
    n = max(len(a.shape), len(b.shape))
    padded = [[1] * (n - len(t.shape)) + list(t.shape) for t in (a, b)]
    shape = [y if getattr(x, "value", x) == 1 else x for x, y in zip(*padded, strict=True)]
    a, b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)
    return te.compute(shape, lambda *i: function(a(*i), b(*i)))


# ---- selection


@builder("where")
def where(condition: Expr, x: Expr, y: Expr) -> Call:
    """Select `x` where `condition` holds, else `y`; the three broadcast together."""
    return make_call("where", condition, x, y)


@type_rule("where")
def infer_where(call: Inputs) -> Type:
    call.count(3)
    condition, x, y = call.tensor(0), call.tensor(1), call.tensor(2)
    if x.dtype != y.dtype:
        raise call.error(f"choices of types {x} and {y}", "one dtype")
    shape = broadcast(x.shape, y.shape)
    shape = None if shape is None else broadcast(condition.shape, shape)
    if shape is None:
        raise call.error(f"{condition}, {x} and {y}", "shapes that broadcast")
    return TensorType(shape, x.dtype)


@converter("where")
def convert_where(op: OpCall) -> RelaxExpr:
    condition = op.args[0]
    if op.type(0).dtype != "bool":
        condition = op.cast(condition, "bool")
    return relax.op.where(condition, op.args[1], op.args[2])

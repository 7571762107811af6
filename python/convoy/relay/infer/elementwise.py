"""Operators that work element by element."""

from __future__ import annotations

from convoy.relay.infer.rules import Inputs, broadcast, rule
from convoy.relay.types import TensorType, Type

_SAME = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh ceil cos cosh copy erf exp fast_erf fast_exp"
    " fast_tanh floor log log10 log2 negative round rsqrt sigmoid sign sin sinh sqrt tan tanh"
    " trunc bitwise_not logical_not nn.relu nn.leaky_relu clip zeros_like ones_like hardswish"
    " annotation.stop_fusion annotation.compiler_begin annotation.compiler_end"
    " annotation.checkpoint on_device device_copy debug"
).split()
_ARITHMETIC = (  # noqa: SIM905
    "add subtract multiply divide floor_divide trunc_divide mod floor_mod trunc_mod power"
    " maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"
    " left_shift right_shift"
).split()
_COMPARISON = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@rule(*_SAME)
def same(call: Inputs) -> Type:
    call.count(1)
    if call.name in ("on_device", "copy"):
        return call.type(0)
    return call.tensor(0)


@rule("isnan", "isinf", "isfinite")
def classify(call: Inputs) -> Type:
    call.count(1)
    return TensorType(call.tensor(0).shape, "bool")


def _broadcast(call: Inputs) -> TensorType:
    call.count(2)
    lhs, rhs = call.tensor(0), call.tensor(1)
    if lhs.dtype != rhs.dtype:
        raise call.error(f"operands of types {lhs} and {rhs}", "one dtype (use cast)")
    shape = broadcast(lhs.shape, rhs.shape)
    if shape is None:
        raise call.error(f"operands of types {lhs} and {rhs}", "shapes that broadcast")
    return TensorType(shape, lhs.dtype)


@rule(*_ARITHMETIC)
def arithmetic(call: Inputs) -> Type:
    return _broadcast(call)


@rule(*_COMPARISON)
def comparison(call: Inputs) -> Type:
    return TensorType(_broadcast(call).shape, "bool")


@rule("cast", "reinterpret")
def cast(call: Inputs) -> Type:
    call.count(1)
    return TensorType(call.tensor(0).shape, call.attrs["dtype"])


@rule("cast_like")
def cast_like(call: Inputs) -> Type:
    call.count(2)
    return TensorType(call.tensor(0).shape, call.tensor(1).dtype)


@rule("where")
def where(call: Inputs) -> Type:
    call.count(3)
    condition, x, y = call.tensor(0), call.tensor(1), call.tensor(2)
    if x.dtype != y.dtype:
        raise call.error(f"choices of types {x} and {y}", "one dtype")
    shape = broadcast(x.shape, y.shape)
    shape = None if shape is None else broadcast(condition.shape, shape)
    if shape is None:
        raise call.error(f"{condition}, {x} and {y}", "shapes that broadcast")
    return TensorType(shape, x.dtype)

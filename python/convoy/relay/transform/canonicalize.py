"""CanonicalizeOps, CanonicalizeCast, FastMath, DivToMul: one operator in the place of another."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, op_call
from convoy.relay.builder import numpy_dtype
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import Rule, call_pass, op_name, tensor_type
from convoy.relay.transform.simplify_inference import along

_FAST = {
    "exp": "fast_exp",
    "tanh": "fast_tanh",
    "erf": "fast_erf",
    "nn.softmax": "nn.fast_softmax",
}
# Operators that read each element of a cast once.
_ELEMENTWISE = {
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "nn.relu", "negative",
    "abs", "round", "floor", "ceil", "cast", "right_shift", "left_shift", "nn.bias_add", "where",
    "equal", "less", "greater", "tanh", "exp", "sigmoid", "sqrt", "rsqrt",
}  # fmt: skip


@register_pass
def CanonicalizeOps() -> Pass:
    """Write bias_add as add."""

    def rule(pre: Call, call: Call) -> Expr | None:
        if op_name(pre) != "nn.bias_add":
            return None
        rank = len(tensor_type(pre.args[0]).shape)
        assert pre.attrs is not None
        axis = pre.attrs["axis"] % rank
        return call.args[0] + along(call.args[1], rank, axis)

    return call_pass("CanonicalizeOps", 3, lambda: rule)


@register_pass
def CanonicalizeCast() -> Pass:
    """Copy casts to a wider dtype for each elementwise user, so that each is fused into it."""

    def make() -> Rule:
        used: set[int] = set()

        def widened(pre: Expr, arg: Expr) -> Expr:
            if op_name(pre) != "cast" or not isinstance(arg, Call):
                return arg
            before, after = (numpy_dtype(tensor_type(e).dtype) for e in (pre.args[0], pre))  # type: ignore[attr-defined]
            if before.itemsize >= after.itemsize:
                return arg
            if id(arg) not in used:
                used.add(id(arg))
                return arg
            return Call(arg.op, arg.args, arg.attrs, span=arg.span)

        def rule(pre: Call, call: Call) -> Expr | None:
            if op_name(pre) not in _ELEMENTWISE:
                return None
            args = [widened(p, a) for p, a in zip(pre.args, call.args, strict=True)]
            return Call(call.op, args, call.attrs, span=call.span)

        return rule

    return call_pass("CanonicalizeCast", 3, make)


@register_pass
def FastMath() -> Pass:
    """Use the approximate exp, tanh, erf and softmax."""

    def rule(pre: Call, call: Call) -> Expr | None:
        name = _FAST.get(op_name(pre))
        return None if name is None else op_call(name, call.args, **dict(pre.attrs or {}))

    return call_pass("FastMath", 4, lambda: rule)


@register_pass
def DivToMul() -> Pass:
    """Multiply by the reciprocal of a constant in the place of a division by it."""

    def rule(pre: Call, call: Call) -> Expr | None:
        divisor = call.args[1] if op_name(pre) == "divide" else None
        if not isinstance(divisor, Constant) or tensor_type(pre).dtype[:5] not in (
            "float",
            "bfloa",
        ):
            return None
        with np.errstate(divide="ignore"):
            value = np.asarray(1 / divisor.value).astype(divisor.value.dtype)
        return op_call("multiply", [call.args[0], Constant(value)])

    return call_pass("DivToMul", 0, lambda: rule)

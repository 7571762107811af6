"""Operators that take only tensors: one helper each, made from the table of operators."""

from __future__ import annotations

from collections.abc import Callable

from convoy.relay.ast import Call, Expr
from convoy.relay.op.call import call

_UNARY = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh bitwise_not ceil copy cos cosh erf exp fast_erf"
    " fast_exp fast_tanh floor isfinite isinf isnan log log10 log2 logical_not negative"
    " ones_like round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zeros_like"
).split()
_BINARY = (  # noqa: SIM905
    "add subtract multiply divide floor_divide trunc_divide mod floor_mod trunc_mod power"
    " maximum minimum equal not_equal less less_equal greater greater_equal logical_and"
    " logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()


def _unary(name: str) -> Callable[[Expr], Call]:
    def helper(data: Expr) -> Call:
        return call(name, data)

    helper.__name__ = helper.__qualname__ = name
    helper.__doc__ = f"`{name}`, element by element."
    return helper


def _binary(name: str) -> Callable[[Expr, Expr], Call]:
    def helper(lhs: Expr, rhs: Expr) -> Call:
        return call(name, lhs, rhs)

    helper.__name__ = helper.__qualname__ = name
    helper.__doc__ = f"`{name}` of two tensors, which broadcast."
    return helper


HELPERS: dict[str, Callable[..., Call]] = {
    **{name: _unary(name) for name in _UNARY},
    **{name: _binary(name) for name in _BINARY},
}
globals().update(HELPERS)
__all__ = [*HELPERS]

"""The registry of gradient rules.

A rule takes a call, whose arguments have their types, and the gradient of its result. It returns
the gradient for each argument, or None for one that nothing flows to. A rule that users register
(`relay.op.register_gradient`) goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr

Rule = Callable[[ast.Call, Expr], "Sequence[Expr | None]"]
_F = TypeVar("_F", bound=Callable[..., Any])

_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[_F], _F]:
    """Make a function the rule of operators."""

    def register(function: _F) -> _F:
        for name in names:
            assert name not in _RULES, name
            _RULES[name] = function
        return function

    return register


def no_gradient(*names: str) -> None:
    """Declare that nothing flows to the arguments of operators."""
    rule(*names)(lambda call, grad: [None] * len(call.args))


def rule_of(name: str) -> Rule:
    """Return the rule of an operator.

    Raises:
        UnsupportedOp: It has none.
    """
    own = ast.op(name).get_attr("FPrimalGradient")
    if own is not None:
        return own
    if name not in _RULES:
        raise UnsupportedOp(
            f"the gradient of {name}, which convoy does not have",
            remedy=f"Register one: relay.op.register_gradient('{name}', rule)",
        )
    return _RULES[name]

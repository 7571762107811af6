"""LazyGradientInit: gradients start without tensors of zeros and ones."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import call_pass, op_name

# Operators by the tensor that is their neutral element.
_NEUTRAL = {"add": ("zeros", "zeros_like"), "multiply": ("ones", "ones_like")}


@register_pass
def LazyGradientInit() -> Pass:
    """Leave out tensors of zeros that are only added, and of ones that are only multiplied.

    Reverse-mode differentiation starts every gradient with them. Those that broadcast the other
    operand to more elements stay.
    """
    return call_pass("LazyGradientInit", 1, lambda: _other_operand)


def _other_operand(old: Call, new: Call) -> Expr | None:
    """Return the operand that a sum or a product is equal to, None if it is equal to neither."""
    for name in _NEUTRAL.get(op_name(old), ()):
        for index in (0, 1):
            same = old.args[index].checked_type == old.checked_type
            if same and op_name(new.args[1 - index]) == name:
                return new.args[index]
    return None

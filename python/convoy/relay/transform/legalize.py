"""Legalize: rewrite calls with functions that users registered for their operators."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr, Op
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import call_pass


@register_pass
def Legalize(legalize_map_attr_name: str = "FTVMLegalize") -> Pass:
    """Replace calls by what the function registered for their operator returns.

    Args:
        legalize_map_attr_name: The key that the functions are registered under. A function gets the
            attributes, the arguments, and the types of the arguments and of the result; None keeps
            the call.
    """

    def rule(pre: Call, call: Call) -> Expr | None:
        assert isinstance(pre.op, Op)
        function = pre.op.get_attr(legalize_map_attr_name)
        if function is None:
            return None
        types = [*(arg.checked_type for arg in pre.args), pre.checked_type]
        found: Expr | None = function(pre.attrs, list(call.args), types)
        return found

    return call_pass("Legalize", 1, lambda: rule)

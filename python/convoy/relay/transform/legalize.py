"""Legalize: rewrite calls with functions that users registered for their operators."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Call, Expr, Op
from convoy.relay.builder import numpy_dtype
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import call_pass, op_name


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
            return _without_clip(call) if legalize_map_attr_name == "FTVMLegalize" else None
        types = [*(arg.checked_type for arg in pre.args), pre.checked_type]
        found: Expr | None = function(pre.attrs, list(call.args), types)
        return found

    return call_pass("Legalize", 1, lambda: rule)


def _without_clip(call: Call) -> Expr | None:
    """Return the requantized tensor of a clip to the range of its dtype, None for other calls."""
    if op_name(call) != "clip" or op_name(call.args[0]) != "qnn.requantize":
        return None
    requantize = call.args[0]
    assert isinstance(requantize, Call) and requantize.attrs is not None and call.attrs is not None
    info = np.iinfo(numpy_dtype(str(requantize.attrs["out_dtype"])))
    whole = call.attrs["a_min"] <= info.min and call.attrs["a_max"] >= info.max
    return requantize if whole else None

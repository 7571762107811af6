"""Reshape by Relax's operator where TVM's dispatch of scans calls the virtual machine's.

The latter is a call of unknown effects, for which no streams and no CUDA graph of the whole
function are planned; the former becomes a view.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.expr import op_name
from ..graph.rewriter import Rewriter


class PlainReshapes(Rewriter):
    """Rewrite call_pure_packed("vm.builtin.reshape", x, shape) into reshape(x, shape)."""

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(call) != "relax.call_pure_packed":
            return None
        callee, *args = call.args
        if not isinstance(callee, relax.ExternFunc):
            return None
        if str(callee.global_symbol) != "vm.builtin.reshape":
            return None
        return op.reshape(*args)

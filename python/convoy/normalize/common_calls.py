"""Operator calls that are written twice.

As TVM's EliminateCommonSubexpr, which hashes every weight of the network to compare calls.
"""

from __future__ import annotations

import tvm_ffi
from tvm import relax

from ..graph.rewriter import Rewriter


class EliminateCommonCalls(Rewriter):
    """Compute what equal operators of equal arguments return only once."""

    def __init__(self) -> None:
        super().__init__()
        #: Calls, and the variables that they were bound to, by a hash without elements of weights.
        self._earlier: dict[int, list[tuple[relax.Call, relax.Var]]] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if not call.op.get_attr("FPurity"):
            return None
        digest = tvm_ffi.structural_hash(call, skip_tensor_content=True)
        alike = self._earlier.setdefault(digest, [])
        for earlier, var in alike:
            if tvm_ffi.structural_equal(earlier, call):
                return self.renamed[var]
        alike.append((call, self.old.var))
        return None

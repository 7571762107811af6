"""Recurrent layers that no kernel computes as a whole -> a GEMM and a cell for each step."""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import relax_ops
from ..graph.rewriter import Rewriter
from ..ops.recurrent import Recurrent, unrolled
from ..tir.recurrent import has_kernel


class UnrollRecurrent(Rewriter):
    """Unroll layers; by default all of them.

    Args:
        dtype: The dtype policy.
        arch: Compute capability times ten of the GPU; 0 for a CPU.
    """

    ops: ClassVar[frozenset[str] | None] = relax_ops("convoy.recurrent")

    def __init__(self, dtype: str = "float32", arch: int = 0) -> None:
        super().__init__()
        self._dtype, self._arch = dtype, arch

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if has_kernel(Recurrent.of(call), self._dtype, self._arch):
            return None
        return unrolled(call, self.emit)

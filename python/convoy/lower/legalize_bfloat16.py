"""Casts to bfloat16 that round.

TVM computes bfloat16 in float32 on CPUs, where a cast to it and back would be no operation.
"""

from __future__ import annotations

from tvm import relax, te, tirx

from ..graph.expr import dtype_of
from ..graph.target import on_gpu
from .default import default_legalize


def astype(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A cast; of float32 to bfloat16 on a CPU with its rounding, to the nearest even number."""
    if on_gpu() or (dtype_of(call.args[0]), dtype_of(call)) != ("float32", "bfloat16"):
        return default_legalize(bb, call)
    elementwise = {"op_pattern": 0}
    return bb.call_te(_rounded, call.args[0], primfunc_name_hint="cast", primfunc_attrs=elementwise)


def _rounded(x: te.Tensor) -> te.Tensor:
    def element(*i: tirx.Var) -> tirx.Expr:
        value = x(*i)
        bits = tirx.reinterpret("uint32", value)
        odd = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
        kept = (bits + tirx.const(0x7FFF, "uint32") + odd) & tirx.const(0xFFFF0000, "uint32")
        rounded = tirx.Select(value == value, tirx.reinterpret("float32", kept), value)
        return rounded.astype("bfloat16")

    return te.compute(x.shape, element, name="rounded")

"""Helpers shared by the legalizations."""

from __future__ import annotations

import tvm
from tvm import relax

#: Kernels that a following elementwise operator is fused into (kOutEWiseFusable).
FUSABLE = {"op_pattern": 4}


def default_legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize a call as TVM, or convoy's registration of the operator, does."""
    return tvm.ir.Op.get(call.op.name).get_attr("FLegalize")(builder, call)

"""Recurrent layers by one kernel each (:mod:`convoy.tir.recurrent`)."""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ops.recurrent import Recurrent
from ..tir.recurrent import recurrent_kernel


class RecurrentKernels(Rewriter):
    """Call the kernel; layers that it does not compute were unrolled by ``normalize``."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("convoy.recurrent")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        layer = Recurrent.of(call)
        kernel = recurrent_kernel(layer)
        flat = [self.reshaped(a, (math.prod(shape_of(a)),)) for a in call.args]
        types = [relax.TensorType((math.prod(shape),), layer.dtype) for shape in layer.results]
        var = self.builder.add_func(kernel.without_attr("global_symbol"), "recurrent")
        found = self.emit(op.call_tir(var, flat, types))
        parts = [self.emit(relax.TupleGetItem(found, i)) for i in range(len(types))]
        return relax.Tuple([self.reshaped(p, s) for p, s in zip(parts, layer.results, strict=True)])

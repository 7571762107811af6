"""Scatters on a GPU by kernels with a thread for each update (:mod:`convoy.tir.scatter`)."""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, op_name, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..tir.scatter import Scatter, scatter_kernels


class ScatterInParallel(Rewriter):
    """Rewrite scatters in front of Decompose and OrderNan: the kernels handle NaN, and indices of a
    part of the data, themselves."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("scatter_elements scatter_nd")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, indices, _ = call.args
        shape, places, given = map(shape_of, old.args)
        is_nd = op_name(call) == "relax.scatter_nd"
        axis = None if is_nd else int(call.attrs.axis) % len(shape)
        dtypes, reduction = (dtype_of(data), dtype_of(indices)), str(call.attrs.reduction)
        scatter = Scatter(shape, places, given, *dtypes, reduction, axis)
        if not scatter.supported:
            return None
        size = math.prod(shape)
        kernel = scatter_kernels(scatter).without_attr("global_symbol")
        flat = [self.reshaped(arg, (math.prod(shape_of(arg)),)) for arg in call.args]
        types = [relax.TensorType((size,), t) for t in (scatter.accumulator_dtype, scatter.dtype)]
        both = self.emit(op.call_tir(self.builder.add_func(kernel, "scatter"), flat, types))
        return self.reshaped(self.emit(relax.TupleGetItem(both, 1)), shape)

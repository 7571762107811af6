"""Compile the gradient of each softmax over the last axis to one GPU kernel."""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax

from ..graph.expr import dtype_of, ints, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from ..tir.row_norm_gradient import gradient_kernel
from ..tir.row_norms import LONGEST_ROW, RowNorm


class SoftmaxGradients(Rewriter):
    """Call :mod:`convoy.tir.row_norm_gradient` for ``(dy - sum(dy * y)) * y``, which it computes in
    float32."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("multiply")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        for y, distance in (call.args[:], call.args[::-1]):
            dy = self._gradient(y, distance)
            if dy is not None:
                return self._call(dy, y)
        return None

    def _gradient(self, y: relax.Expr, distance: relax.Expr) -> relax.Expr | None:
        """dy of a ``distance`` of dy from the sums of ``dy * y`` over rows that a kernel keeps."""
        made = self.producer(distance, "relax.subtract")
        total = None if made is None else self._uncast(made.args[1], "relax.sum")
        product = None if total is None else self._uncast(total.args[0], "relax.multiply")
        if made is None or total is None or product is None:
            return None
        if total.attrs.axis is None or not total.attrs.keepdims:
            return None
        dy, (first, second) = made.args[0], product.args
        same = (first.same_as(dy) and second.same_as(y)) or (
            first.same_as(y) and second.same_as(dy)
        )
        axes = [axis % rank_of(y) for axis in ints(total.attrs.axis)]
        if not same or axes != [rank_of(y) - 1] or shape_of(dy) != shape_of(y):
            return None
        fits = 1 < shape_of(y)[-1] <= LONGEST_ROW and dtype_of(y) in FLOAT_DTYPES
        return dy if fits and dtype_of(dy) == dtype_of(y) else None

    def _uncast(self, value: relax.Expr, name: str) -> relax.Call | None:
        """The call of an operator that a value is, or was cast from: sums of 16-bit values are in
        float32."""
        cast = self.producer(value, "relax.astype")
        return self.producer(value if cast is None else cast.args[0], name)

    def _call(self, dy: relax.Expr, y: relax.Expr) -> relax.Expr:
        *outer, columns = shape_of(y)
        dtype = dtype_of(y)
        norm = RowNorm("softmax_gradient", math.prod(outer), columns, dtype, dtype)
        callee = self.builder.add_func(gradient_kernel(norm), norm.kind)
        flat = [self.reshaped(value, norm.shape) for value in (dy, y)]
        found = self.emit(relax.op.call_tir(callee, flat, relax.TensorType(norm.shape, dtype)))
        return relax.op.reshape(found, shape_of(y))

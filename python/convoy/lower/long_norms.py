"""Layer norms over several axes as norms of rows, and those of long rows as group norms.

A kernel for norms of rows keeps a row in the registers of one block; sums of groups use the whole
GPU for a row.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax
from tvm.relax import op

from ..graph.expr import call_like, dtype_of, ints, make_const, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..tir.row_norms import LONGEST_ROW


class LongNorms(Rewriter):
    """Rewrite layer norms over the last axes of a tensor."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.layer_norm")
    infer_first: ClassVar[bool] = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        shape, attrs = shape_of(old), call.attrs
        axes = sorted(axis % len(shape) for axis in ints(attrs.axes))
        if axes != list(range(len(shape) - len(axes), len(shape))):
            return None
        size = math.prod(shape[axis] for axis in axes)
        rows, is_long = math.prod(shape) // max(1, size), size > LONGEST_ROW
        if not size or (len(axes) == 1 and not is_long):
            return None
        data, gamma, beta = call.args
        gamma, beta = (self.reshaped(x, (size,)) for x in (gamma, beta))
        flat = self._rows(data, (rows, 1, size) if is_long else (rows, size))
        if not is_long:
            result = call_like(call, [flat, gamma, beta], axes=[-1])
            return op.reshape(self.emit(result), shape)
        one, zero = (make_const(np.full(1, x, "float32"), "float32") for x in (1, 0))
        norm = op.nn.group_norm(flat, one, zero, 1, 1, [2], float(attrs.epsilon))
        scaled = self.emit(op.multiply(self.emit(norm), gamma)) if attrs.scale else self.emit(norm)
        return op.reshape(self.emit(op.add(scaled, beta)) if attrs.center else scaled, shape)

    def _rows(self, data: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
        """The data in another shape; a cast to float32 stays next to the norm."""
        made = self.producer(data, "relax.astype")
        if made is None or dtype_of(made.args[0]) not in HALF_DTYPES:
            return self.reshaped(data, shape)
        return self.emit(call_like(made, [self.reshaped(made.args[0], shape)]))

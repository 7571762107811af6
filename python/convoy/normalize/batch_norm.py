"""Inference batch norm as one multiplication and one addition per channel.

``y = (x - mean) / sqrt(var + eps) * gamma + beta`` becomes ``y = x * scale + shift``; the affine
pass then folds ``scale`` into the weights of a convolution in front of it where there is one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import as_numpy, dtype_of, is_const, make_const, rank_of, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import numpy_dtype


class DecomposeBatchNorm(Rewriter):
    """Batch norms that use batch statistics (``training=True``) are left to TVM."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.batch_norm"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        x, _, _, mean, var = call.args
        if bool(call.attrs.training):
            return None
        axis = int(call.attrs.axis) % rank_of(x)
        scale, shift = self._coefficients(call)
        shape = [1] * rank_of(x)
        shape[axis] = shape_of(x)[axis]
        scaled = self.emit(relax.op.multiply(x, self.emit(relax.op.reshape(scale, shape))))
        y = self.emit(relax.op.add(scaled, self.emit(relax.op.reshape(shift, shape))))
        return relax.Tuple([y, mean, var])

    def _coefficients(self, call: relax.Call) -> tuple[relax.Expr, relax.Expr]:
        """(scale, shift) of shape (channels,) and the data's dtype."""
        x, gamma, beta, mean, var = call.args
        attrs = call.attrs
        if all(is_const(e) for e in (gamma, beta, mean, var)):
            g, b, m, v = (as_numpy(e).astype(np.float64) for e in (gamma, beta, mean, var))
            scale = (g if attrs.scale else 1.0) / np.sqrt(v + float(attrs.epsilon))
            shift = (b if attrs.center else 0.0) - m * scale
            dtype = numpy_dtype(dtype_of(x))
            return make_const(scale.astype(dtype)), make_const(shift.astype(dtype))
        op, emit = relax.op, self.emit
        wide = "float64" if dtype_of(x) == "float64" else "float32"
        gamma, beta, mean, var = (
            e if dtype_of(e) == wide else emit(op.astype(e, wide)) for e in (gamma, beta, mean, var)
        )
        epsilon = relax.const(float(attrs.epsilon), wide)
        scale = emit(op.rsqrt(emit(op.add(var, epsilon))))
        if attrs.scale:
            scale = emit(op.multiply(scale, gamma))
        shift = emit(op.negative(emit(op.multiply(mean, scale))))
        if attrs.center:
            shift = emit(op.add(shift, beta))
        if dtype_of(x) != wide:
            scale, shift = (emit(op.astype(e, dtype_of(x))) for e in (scale, shift))
        return scale, shift

"""Rewrite pow() so that CUDA handles negative bases.

TVM compiles CUDA with fast math, in which ``powf(x, y)`` is ``exp2(y * log2(x))``: NaN for a
negative x even where y is 2, and for 0 to the power of 0.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..graph.expr import as_numpy, dtype_of, is_const, make_const, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..graph.target import on_gpu
from ..ir.dtypes import FLOAT_DTYPES, HALF_DTYPES

#: Largest exponent that is expanded into multiplications, by squaring; each adds half an ulp to the
#: error.
MOST = 32


class RewritePower(Rewriter):
    """For CUDA, expand integer constant exponents into multiplications and 0.5 into sqrt; for
    computed exponents, apply the sign of the result to a power of the absolute value.

    Unchanged are float64, which has no fast math, and other constant exponents, which have no real
    result for a negative base.
    """

    ops: ClassVar[frozenset[str]] = relax_ops("power")

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return super().__call__(mod) if on_gpu() else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        dtype = dtype_of(old)
        if dtype not in FLOAT_DTYPES:
            return None
        base, exponent = call.args
        if dtype in HALF_DTYPES:
            base, exponent = (self.emit(op.astype(x, "float32")) for x in (base, exponent))
        known = _constant(call.args[1])
        result = self._general(base, exponent) if known is None else self._constant(base, known)
        if result is None:
            return None
        if shape_of(self.emit(result)) != shape_of(old):
            result = op.broadcast_to(self.emit(result), shape_of(old))
        return op.astype(self.emit(result), dtype) if dtype in HALF_DTYPES else result

    def _constant(self, base: relax.Expr, exponent: float) -> relax.Expr | None:
        if abs(exponent) == 0.5:
            return op.sqrt(base) if exponent > 0 else op.rsqrt(base)
        if exponent != round(exponent) or abs(exponent) > MOST:
            return None
        if exponent == 0:
            return op.ones_like(base)
        result, square, left = None, base, round(abs(exponent))
        while left:
            if left % 2:
                result = square if result is None else self.emit(op.multiply(result, square))
            left //= 2
            if left:
                square = self.emit(op.multiply(square, square))
        return result if exponent > 0 else op.divide(_number(1), result)

    def _general(self, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
        emit = self.emit
        size = emit(op.power(emit(op.abs(base)), exponent))
        halves = emit(op.floor(emit(op.multiply(exponent, _number(0.5)))))
        odd = emit(op.not_equal(emit(op.multiply(halves, _number(2))), exponent))
        whole = emit(op.equal(emit(op.floor(exponent)), exponent))
        signed = emit(op.where(odd, emit(op.negative(size)), size))
        of_negative = emit(op.where(whole, signed, _number(np.nan)))
        result = emit(op.where(emit(op.less(base, _number(0))), of_negative, size))
        return op.where(emit(op.equal(exponent, _number(0))), _number(1), result)


def _constant(exponent: relax.Expr) -> float | None:
    """Return the value of a scalar constant exponent; None for any other."""
    if not is_const(exponent):
        return None
    values = as_numpy(exponent)
    return float(values.flat[0]) if values.size == 1 else None


def _number(value: float) -> relax.Expr:
    return make_const(np.array(value, "float32"))

"""Recognize norms of the last axis that are written out, as one operator, which is one kernel.

    x * rsqrt(mean(x ** 2) + eps),  x / sqrt(mean(x ** 2) + eps)    an RMS norm
    x / max(sqrt(sum(x ** 2)), eps)                                 rows of length one

The second is an RMS norm of another scale with ``eps ** 2 / columns`` under the root: it differs
where a row is hardly longer than ``eps``, and gives zeros for zeros as well.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    FLOAT_DTYPES,
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    numpy_dtype,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter

_MEAN, _SUM = "relax.mean", "relax.sum"
#: Lower bounds of a length that only guard against zero, and whose squares do not underflow.
_GUARD = (1e-16, 1e-7)


class RecognizeRowNorms(Rewriter):
    """Replace the multiplication or division at the end of a norm, and the scale after it."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("multiply divide")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if dtype_of(call) not in FLOAT_DTYPES or rank_of(call) < 2:
            return None
        orders = [tuple(call.args)]
        if op_name(call) == "relax.multiply":
            orders.append((call.args[1], call.args[0]))
        for x, other in orders:
            if shape_of(x) != shape_of(call):
                continue
            if op_name(call) == "relax.multiply" and is_const(other):
                return self._scaled(x, other)
            if (found := self._norm(x, other, op_name(call) == "relax.divide")) is not None:
                return found
        return None

    def _norm(self, x: relax.Expr, other: relax.Expr, divides: bool) -> relax.Expr | None:
        root = self._made(other)
        name = op_name(root)
        columns = shape_of(x)[-1]
        if name == "relax.maximum" and divides:
            bound, length = _number(root.args[1]), self._made(root.args[0])
            if not _GUARD[0] <= bound <= _GUARD[1] or op_name(length) != "relax.sqrt":
                return None
            if not self._is_of_squares(length.args[0], x, _SUM):
                return None
            return _rms_norm(x, 1 / math.sqrt(columns), bound**2 / columns)
        if name != ("relax.sqrt" if divides else "relax.rsqrt"):
            return None
        total = self._made(root.args[0])
        if op_name(total) != "relax.add" or not _number(total.args[1]) > 0:
            return None
        if not self._is_of_squares(total.args[0], x, _MEAN):
            return None
        return _rms_norm(x, 1.0, _number(total.args[1]))

    def _scaled(self, x: relax.Expr, scale: relax.Expr) -> relax.Expr | None:
        """The norm with a scale for each column, unless it already has one."""
        norm = self._made(x)
        columns = shape_of(x)[-1]
        if op_name(norm) != "relax.nn.rms_norm" or shape_of(scale)[-1:] != (columns,):
            return None
        gamma = as_numpy(norm.args[1]).astype(np.float64) if is_const(norm.args[1]) else None
        if math.prod(shape_of(scale)) != columns or gamma is None or len({*gamma}) > 1:
            return None
        factors = as_numpy(scale).astype(np.float64).reshape(-1) * gamma
        weight = make_const(factors, dtype_of(x))
        data = self._in(norm.args[0], dtype_of(x))
        return relax.op.nn.rms_norm(data, weight, [-1], float(norm.attrs.epsilon))

    def _in(self, x: relax.Expr, dtype: str) -> relax.Expr:
        return x if dtype_of(x) == dtype else self.emit(relax.op.astype(x, dtype))

    def _is_of_squares(self, expr: relax.Expr, x: relax.Expr, reduction: str) -> bool:
        """Whether a value is the sum or mean of the squares of x over the last axis."""
        call = self._made(expr)
        if op_name(call) != reduction or not call.attrs.keepdims or call.attrs.axis is None:
            return False
        if ints(call.attrs.axis) not in ((-1,), (rank_of(x) - 1,)):
            return False
        square = self._made(call.args[0])
        if op_name(square) == "relax.power":
            base, is_square = square.args[0], _number(square.args[1]) == 2
        elif op_name(square) == "relax.multiply":
            base, is_square = square.args[0], square.args[0].same_as(square.args[1])
        else:
            return False
        return is_square and bool(self._bare(base).same_as(self._bare(x)))

    def _made(self, expr: relax.Expr) -> relax.Expr:
        """The call that computed a value, ignoring casts and broadcasts."""
        while (call := self.producer(expr)) is not None:
            if op_name(call) not in ("relax.astype", "relax.broadcast_to"):
                return call
            expr = call.args[0]
        return expr

    def _bare(self, expr: relax.Expr) -> relax.Expr:
        while (call := self.producer(expr, "relax.astype")) is not None:
            expr = call.args[0]
        return expr


def _number(expr: relax.Expr) -> float:
    if not is_const(expr) or as_numpy(expr).size != 1:
        return math.nan
    return float(as_numpy(expr).item())


def _rms_norm(x: relax.Expr, scale: float, epsilon: float) -> relax.Expr:
    weight = make_const(np.full(shape_of(x)[-1:], scale, numpy_dtype(dtype_of(x))))
    return relax.op.nn.rms_norm(x, weight, [-1], epsilon)

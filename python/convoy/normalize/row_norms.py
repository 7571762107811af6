"""Recognize norms of the last axis that are written out, as one operator, which is one kernel.

    x * rsqrt(mean(x ** 2) + eps),  x / sqrt(mean(x ** 2) + eps)    an RMS norm
    x / max(sqrt(sum(x ** 2)), eps)                                 rows of length one
    either of ``x - mean(x)``, or with the variance of x in it      a layer norm

The second is an RMS norm of another scale with ``eps ** 2 / columns`` under the root: it differs
where a row is hardly longer than ``eps``, and gives zeros for zeros as well.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from .norms_of_rows import is_of_last_axis

_MEAN, _SUM, _VARIANCE = "relax.mean", "relax.sum", "relax.variance"
_NORMS = relax_ops("nn.rms_norm nn.layer_norm")
#: Lower bounds of a length that only guard against zero, and whose squares do not underflow.
_GUARD = (1e-16, 1e-7)


class RecognizeRowNorms(Rewriter):
    """Replace the multiplication or division at the end of a norm, and the scale and shift after
    it."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("multiply divide add")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if dtype_of(call) not in FLOAT_DTYPES or rank_of(call) < 2:
            return None
        orders = [tuple(call.args)]
        if op_name(call) != "relax.divide":
            orders.append((call.args[1], call.args[0]))
        for x, other in orders:
            if shape_of(x) != shape_of(call):
                continue
            if op_name(call) == "relax.add":
                if is_const(other):
                    return self._shifted(x, other)
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
            return self._of_rows(x, 1 / math.sqrt(columns), bound**2 / columns)
        if name != ("relax.sqrt" if divides else "relax.rsqrt"):
            return None
        total = self._made(root.args[0])
        if op_name(total) != "relax.add" or not _number(total.args[1]) > 0:
            return None
        if not self._is_spread_of(total.args[0], x):
            return None
        return self._of_rows(x, 1.0, _number(total.args[1]))

    def _of_rows(self, x: relax.Expr, scale: float, epsilon: float) -> relax.Expr:
        """The RMS norm of rows; the layer norm where their mean is subtracted first."""
        weight = np.full(shape_of(x)[-1:], scale)
        centred = self._centred(x)
        if centred is None:
            return relax.op.nn.rms_norm(x, make_const(weight, dtype_of(x)), [-1], epsilon)
        return self._layer_norm(self._in(centred, dtype_of(x)), weight, 0 * weight, epsilon)

    def _layer_norm(
        self, data: relax.Expr, gamma: np.ndarray, beta: np.ndarray, epsilon: float
    ) -> relax.Expr:
        vectors = (make_const(values, dtype_of(data)) for values in (gamma, beta))
        return relax.op.nn.layer_norm(data, *vectors, axes=[-1], epsilon=epsilon)

    def _centred(self, x: relax.Expr) -> relax.Expr | None:
        """The rows of which ``x`` are the distances from their means."""
        difference = self._made(x)
        if op_name(difference) != "relax.subtract":
            return None
        data, mean = difference.args[0], self._made(difference.args[1])
        if not _is_of_rows(mean, _MEAN) or not self._same(mean.args[0], data):
            return None
        return data if shape_of(data) == shape_of(x) else None

    def _scaled(self, x: relax.Expr, scale: relax.Expr) -> relax.Expr | None:
        """The norm with a scale for each column, unless it already has one."""
        norm = self._made(x)
        if op_name(norm) not in _NORMS or not _has_vectors(norm):
            return None
        factors, (gamma, *shift) = _columns(scale, x), map(_values, norm.args[1:])
        if factors is None or len({*gamma}) > 1:
            return None
        data, epsilon = self._in(norm.args[0], dtype_of(x)), float(norm.attrs.epsilon)
        if shift:
            return self._layer_norm(data, factors * gamma, factors * shift[0], epsilon)
        weight = make_const(factors * gamma, dtype_of(x))
        return relax.op.nn.rms_norm(data, weight, [-1], epsilon)

    def _shifted(self, x: relax.Expr, shift: relax.Expr) -> relax.Expr | None:
        """The layer norm with a shift for each column, unless it already has one."""
        norm = self._made(x)
        if op_name(norm) != "relax.nn.layer_norm" or not _has_vectors(norm):
            return None
        added, (gamma, beta) = _columns(shift, x), map(_values, norm.args[1:])
        if added is None or beta.any():
            return None
        data = self._in(norm.args[0], dtype_of(x))
        return self._layer_norm(data, gamma, added, float(norm.attrs.epsilon))

    def _in(self, x: relax.Expr, dtype: str) -> relax.Expr:
        return x if dtype_of(x) == dtype else self.emit(relax.op.astype(x, dtype))

    def _is_spread_of(self, expr: relax.Expr, x: relax.Expr) -> bool:
        """Whether a value is the mean of the squares of x, or x are distances from means and it is
        the variance of what they are of."""
        variance = self._made(expr)
        if not _is_of_rows(variance, _VARIANCE):
            return self._is_of_squares(expr, x, _MEAN)
        centred = self._centred(x)
        return centred is not None and self._same(variance.args[0], centred)

    def _is_of_squares(self, expr: relax.Expr, x: relax.Expr, reduction: str) -> bool:
        """Whether a value is the sum or mean of the squares of x over the last axis."""
        call = self._made(expr)
        if not _is_of_rows(call, reduction):
            return False
        square = self._made(call.args[0])
        if op_name(square) == "relax.power":
            base, is_square = square.args[0], _number(square.args[1]) == 2
        elif op_name(square) == "relax.multiply":
            base, is_square = square.args[0], square.args[0].same_as(square.args[1])
        else:
            return False
        return is_square and self._same(base, x)

    def _same(self, one: relax.Expr, other: relax.Expr) -> bool:
        """Whether two values are one but for casts."""
        return bool(self._bare(one).same_as(self._bare(other)))

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


def _has_vectors(norm: relax.Call) -> bool:
    """Whether a norm is of the last axis, and its scale and shift are constants."""
    return is_of_last_axis(norm) and all(map(is_const, norm.args[1:]))


def _number(expr: relax.Expr) -> float:
    if not is_const(expr) or as_numpy(expr).size != 1:
        return math.nan
    return float(as_numpy(expr).item())


def _values(constant: relax.Expr) -> np.ndarray:
    return as_numpy(constant).astype(np.float64)


def _columns(constant: relax.Expr, x: relax.Expr) -> np.ndarray | None:
    """A constant with a number for each column of x."""
    columns = shape_of(x)[-1]
    if shape_of(constant)[-1:] != (columns,) or math.prod(shape_of(constant)) != columns:
        return None
    return _values(constant).reshape(-1)


def _is_of_rows(call: relax.Expr, reduction: str) -> bool:
    """Whether a call reduces the last axis, which stays as one of size 1."""
    if op_name(call) != reduction or not call.attrs.keepdims or call.attrs.axis is None:
        return False
    return ints(call.attrs.axis) in ((-1,), (rank_of(call) - 1,))

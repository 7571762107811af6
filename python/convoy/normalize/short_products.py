"""Express linear layers over a short axis that was moved to the end with element-wise operators.

Attention whose heads are mixed permutes its scores, (heads, queries, keys), applies a linear layer
to the heads and permutes them back: three kernels for a weighted sum of a few tensors that lie
behind each other. As products and sums along the axis where it is, it is one kernel, with the bias
in it, and the softmax behind it is again one of rows.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
from tvm import relax
from tvm.relax import op

from ..graph.expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    padding4,
    permutation_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from ..ops.conv_attrs import has_normal_layouts

#: Longest such axis, of what is read and of what is written.
MOST = 16
#: A value in its own order of axes, and the permutation that the network has of it.
Moved = tuple[relax.Expr, tuple[int, ...]]


class ShortProducts(Rewriter):
    """Rewrite products and convolutions of single pixels with a constant matrix, and the bias and
    softmax behind them."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("matmul nn.conv2d add nn.softmax reshape")

    def __init__(self) -> None:
        super().__init__()
        self._moved: dict[relax.Expr, Moved] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name, shape = op_name(call), shape_of(call)
        if name == "relax.reshape":
            return self.reshaped(call.args[0], shape)
        if name == "relax.add":
            x, other = call.args
            found = self._shifted(x, other, shape)
            return found if found is not None else self._shifted(other, x, shape)
        if name == "relax.nn.softmax":
            return self._softmax(call)
        matrix = _matrix(call)
        permuted = self._permuted(call.args[0]) if matrix is not None else None
        if matrix is None or permuted is None:
            return None
        x, axes = permuted
        return self._as_moved(self._mixed(x, axes[-1], matrix), axes, shape)

    def _permuted(self, expr: relax.Expr) -> Moved | None:
        """What a value is a permutation of that has another axis last, and the permutation; None
        for inputs of the network, whose layout is what convolutions are about to change."""
        view = self.producer(expr, "relax.reshape")
        made = self.producer(view.args[0] if view is not None else expr, "relax.permute_dims")
        if made is None or shape_of(made)[-1] != shape_of(expr)[-1]:
            return None
        if self.producer(made.args[0]) is None:
            return None
        axes = permutation_of(made)
        return (made.args[0], axes) if axes[-1] != len(axes) - 1 else None

    def _mixed(self, x: relax.Expr, axis: int, matrix: np.ndarray) -> relax.Expr:
        """The sum of the slices of x along an axis, each times a row of the matrix."""
        parts = []
        for place, row in enumerate(matrix):
            part = op.strided_slice(x, [axis], [place], [place + 1], assume_inbound=True)
            parts.append(self.emit(op.multiply(self.emit(part), _along(row, axis, x))))
        return functools.reduce(lambda a, b: self.emit(op.add(a, b)), parts)

    def _as_moved(
        self, value: relax.Expr, axes: tuple[int, ...], shape: tuple[int, ...]
    ) -> relax.Expr:
        """The permutation of a value, in a shape that ends with the same axis."""
        permuted = self.emit(op.permute_dims(value, list(axes)))
        self._moved[permuted] = value, axes
        return self.reshaped(permuted, shape)

    def _found(self, expr: relax.Expr) -> Moved | None:
        view = self.producer(expr, "relax.reshape")
        return self._moved.get(view.args[0] if view is not None else expr)

    def _shifted(
        self, x: relax.Expr, bias: relax.Expr, shape: tuple[int, ...]
    ) -> relax.Expr | None:
        """The sum with a bias of the axis that was moved."""
        moved = self._found(x)
        if moved is None or not is_const(bias) or shape_of(x) != shape:
            return None
        values = as_numpy(bias)
        if values.shape[-1:] != shape[-1:] or values.size != shape[-1]:
            return None
        value, axes = moved
        total = self.emit(op.add(value, _along(values.reshape(-1), axes[-1], value)))
        return self._as_moved(total, axes, shape)

    def _softmax(self, call: relax.Call) -> relax.Expr | None:
        """The softmax along what is the last axis of the value."""
        moved, axis = self._moved.get(call.args[0]), int(call.attrs.axis) % rank_of(call)
        if moved is None or moved[1][axis] != rank_of(call) - 1:
            return None
        rows = self.emit(op.nn.softmax(moved[0], -1))
        return self._as_moved(rows, moved[1], shape_of(call))


def _along(values: np.ndarray, axis: int, like: relax.Expr) -> relax.Expr:
    """A constant with one number for each place of an axis."""
    shape = [values.size if i == axis else 1 for i in range(rank_of(like))]
    return make_const(values.reshape(shape), dtype_of(like))


def _matrix(call: relax.Call) -> np.ndarray | None:
    """The matrix, (read, written), that the last axis of a call's data is multiplied with."""
    weights = call.args[1]
    if not is_const(weights) or dtype_of(call) not in FLOAT_DTYPES:
        return None
    values = as_numpy(weights)
    if op_name(call) == "relax.nn.conv2d":
        attrs = call.attrs
        plain = set(ints(attrs.strides)) == {1} and not any(padding4(attrs.padding))
        if not has_normal_layouts(call) or not plain or int(attrs.groups) > 1:
            return None
        if values.shape[1:3] != (1, 1):
            return None
        values = values[:, 0, 0].T
    if values.ndim != 2 or max(values.shape) > MOST or dtype_of(call.args[0]) != dtype_of(call):
        return None
    return values

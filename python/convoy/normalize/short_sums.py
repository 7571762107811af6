"""Express reductions of a few elements along an axis with element-wise operators.

Paths and radices of split attention and their like are a few tensors side by side, weighted and
added up. Element by element the sum becomes part of the kernels around it, and tensors that were
only put side by side for the sum are read where they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES

#: Longest such axis.
MOST = 4
_JOINS: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "relax.sum": op.add,
    "relax.mean": op.add,
    "relax.max": op.maximum,
    "relax.min": op.minimum,
}


class ShortSums(Rewriter):
    """Rewrite sums, means, maxima and minima along one short axis that is not the last."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("sum mean max min")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        x, axes = call.args[0], call.attrs.axis
        if axes is None or len(axes) != 1 or dtype_of(x) not in FLOAT_DTYPES:
            return None
        axis = ints(axes)[0] % rank_of(x)
        size = shape_of(x)[axis]
        if not 2 <= size <= MOST or axis == rank_of(x) - 1:
            return None
        join = _JOINS[op_name(call)]
        parts = (self._part(x, axis, place) for place in range(size))
        total = functools.reduce(lambda a, b: self.emit(join(a, b)), parts)
        if op_name(call) == "relax.mean":
            total = self.emit(op.divide(total, relax.const(float(size), dtype_of(x))))
        return self.reshaped(total, shape_of(call))

    def _part(self, x: relax.Expr, axis: int, place: int) -> relax.Expr:
        """One element along an axis, which stays as one of size 1."""
        size = shape_of(x)[axis]
        if size == 1:
            return x
        shape = (*shape_of(x)[:axis], 1, *shape_of(x)[axis + 1 :])
        product = self.producer(x, "relax.multiply")
        if product is not None and all(rank_of(arg) == rank_of(x) for arg in product.args):
            one, other = (self._part(arg, axis, place) for arg in product.args)
            return self.emit(op.multiply(one, other))
        fields = self._side_by_side(x, axis)
        if len(fields) == size:
            return self.reshaped(fields[place], shape)
        return self.emit(op.strided_slice(x, [axis], [place], [place + 1], assume_inbound=True))

    def _side_by_side(self, x: relax.Expr, axis: int) -> list[relax.Expr]:
        """The tensors of equal shapes that a value has side by side along an axis, which may be cut
        from the one that they were concatenated along."""
        view = self.producer(x, "relax.reshape")
        made = self.producer(view.args[0] if view is not None else x, "relax.concat")
        if made is None or not isinstance(made.args[0], relax.Tuple) or made.attrs.axis is None:
            return []
        fields = list(made.args[0].fields)
        same = len({shape_of(field) for field in fields}) == 1
        start = shape_of(fields[0])[:axis] == shape_of(x)[:axis]
        return fields if same and start and int(made.attrs.axis) % rank_of(made) == axis else []

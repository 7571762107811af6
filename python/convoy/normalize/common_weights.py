"""Write sums of convolutions or matmuls with the same weights as one of the sum of their data.

A layer that is applied to two tensors whose results are added, as in the channel attention of CBAM
to the means and the maxima of an image, is linear: ``w x + w y`` is ``w (x + y)``. One kernel less
reads the weights, and the sum of the data is fused with what computes them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    attr_fields,
    call_like,
    dtype_of,
    is_const,
    make_const,
    op_name,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from .affine import PRODUCTS, channel_constant


class SumBeforeProducts(Rewriter):
    """Merge two terms that have no other readers; their shifts are added."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.add"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if dtype_of(old) not in FLOAT_DTYPES or old.args[0].same_as(old.args[1]):
            return None
        (one, shift), (two, other) = map(self._product, old.args)
        if one is None or two is None or not _have_equal_weights(one, two):
            return None
        data = self.emit(relax.op.add(self.rename(one.args[0]), self.rename(two.args[0])))
        product = self.emit(call_like(one, [data, one.args[1]]))
        total = shift + other
        return relax.op.add(product, make_const(total, dtype_of(old))) if total.any() else product

    def _product(self, expr: relax.Expr) -> tuple[relax.Call | None, np.ndarray]:
        """The old convolution or matmul with constant weights that computes a value for one reader,
        and the constant that is added to it."""
        made, shift = self.single_use(expr), np.zeros(())
        if made is not None and op_name(made) == "relax.add":
            found = channel_constant(made.args[1], made.args[0])
            if found is None:
                return None, shift
            made, shift = self.single_use(made.args[0]), found
        is_product = made is not None and op_name(made) in PRODUCTS and is_const(made.args[1])
        return (made if is_product else None), shift


def _have_equal_weights(one: relax.Call, two: relax.Call) -> bool:
    """Whether two calls are of one kind, of data of one shape, with equal weights."""
    if op_name(one) != op_name(two) or str(attr_fields(one.attrs)) != str(attr_fields(two.attrs)):
        return False
    alike = all(
        shape_of(a) == shape_of(b) and dtype_of(a) == dtype_of(b)
        for a, b in zip(one.args, two.args, strict=True)
    )
    if not alike or one.args[0].same_as(two.args[0]):
        return False
    first, second = one.args[1], two.args[1]
    return bool(first.same_as(second) or np.array_equal(as_numpy(first), as_numpy(second)))

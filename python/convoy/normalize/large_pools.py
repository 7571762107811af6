"""Pools over large windows, one dimension after the other, and over all of an image as reductions.

Each result of a window of ``k x k`` reads ``k * k`` pixels; rows first and then columns of what
those gave, some ``2 k``. Maxima are the same; averages are averages of averages, also where padding
does not count, because the pixels that do are a rectangle.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import (
    call_like,
    dtype_of,
    ints,
    op_name,
    padding4,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES

#: Pixels of a window from which on two kernels are taken to be faster than one: estimated.
_LARGE = 64


class LargePools(Rewriter):
    """Rewrite maxima and averages of floats in NHWC."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.max_pool2d nn.avg_pool2d")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        attrs, data = call.attrs, call.args[0]
        window, strides = ints(attrs.pool_size), ints(attrs.strides)
        top, left, bottom, right = padding4(attrs.padding)
        plain = str(attrs.layout) == "NHWC" and {*ints(attrs.dilation)} == {1}
        if not plain or dtype_of(data) not in FLOAT_DTYPES or math.prod(window) < _LARGE:
            return None
        if window == shape_of(data)[1:3] and not any((top, left, bottom, right)):
            reduce = op.mean if op_name(call) == "relax.nn.avg_pool2d" else op.max
            return reduce(data, [1, 2], keepdims=True)
        if 1 in window:
            return None
        rows = self.emit(
            call_like(
                call, [data], pool_size=[1, window[1]], strides=[1, strides[1]],
                padding=[0, left, 0, right],
            )
        )  # fmt: skip
        return call_like(
            call, [rows], pool_size=[window[0], 1], strides=[strides[0], 1],
            padding=[top, 0, bottom, 0],
        )  # fmt: skip

"""Write convolutions of one channel with a few taps in a row as sums of shifted data.

Efficient channel attention convolves the means of an image's channels with three to seven taps. No
kernel of a library is fast for that, and each needs copies around it; as element-wise operators it
is part of the kernel that multiplies the image by its result.
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
    padding_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from ..ops.conv_attrs import has_normal_layouts

#: Taps of the longest filter, and elements of the largest result: an image is for libraries.
_MOST_TAPS, _MOST_ELEMENTS = 9, 1 << 18


class ShortFilters(Rewriter):
    """Rewrite 2-d convolutions in NHWC with constant filters of one row or column."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.conv2d")

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        if not is_const(kernel) or not has_normal_layouts(call):
            return None
        filters, shape = as_numpy(kernel), shape_of(call)
        is_row = filters.shape[0] == filters.shape[3] == 1 and 1 in filters.shape[1:3]
        if dtype_of(call) not in FLOAT_DTYPES or dtype_of(data) != dtype_of(call) or not is_row:
            return None
        if not 1 < filters.size <= _MOST_TAPS or math.prod(shape) > _MOST_ELEMENTS:
            return None
        top, left, bottom, right = padding_of(call.attrs.padding, 2)
        if top or left or bottom or right:
            data = self.emit(relax.op.nn.pad(data, [0, 0, top, bottom, left, right, 0, 0]))
        axis = 1 if filters.shape[1] > 1 else 2
        stride, dilation = ints(call.attrs.strides), ints(call.attrs.dilation)
        total: relax.Expr | None = None
        for tap, factor in enumerate(filters.reshape(-1)):
            begin = [0, 0]
            begin[axis - 1] = tap * dilation[axis - 1]
            end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, shape[1:3], stride, strict=True)]
            part = relax.op.strided_slice(data, [1, 2], begin, end, list(stride))
            scaled = self.emit(relax.op.multiply(self.emit(part), _number(factor, call)))
            total = scaled if total is None else self.emit(relax.op.add(total, scaled))
        return total


def _number(value: np.generic, like: relax.Expr) -> relax.Expr:
    return make_const(np.asarray(value), dtype_of(like))

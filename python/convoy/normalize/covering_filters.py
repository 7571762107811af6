"""Convolutions whose filter covers all of the data: matrix products, written as convolutions of
single pixels.

So are classifiers and the last layers of attention in fully convolutional networks. With few
channels, libraries would pad each of them for tensor cores; the elements that a filter covers are
many.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax

from ..graph.expr import as_numpy, call_like, is_const, make_const, padding_of, shape_of
from ..graph.rewriter import Rewriter
from ..ops.conv_attrs import has_normal_layouts


class FlattenCovered(Rewriter):
    """Of convolutions over images, channels last and with constant filters."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.conv2d"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        (data, filters), attrs = call.args, call.attrs
        if not has_normal_layouts(call) or not is_const(filters) or int(attrs.groups) != 1:
            return None
        (n, *size, c), (k, *window, _) = shape_of(data), shape_of(filters)
        if size != window or math.prod(size) == 1 or any(padding_of(attrs.padding, 2)):
            return None
        count = math.prod(size) * c
        flat = self.reshaped(data, (n, 1, 1, count))
        rows = make_const(as_numpy(filters).reshape(k, 1, 1, count))
        return call_like(call, [flat, rows], strides=[1, 1], dilation=[1, 1])

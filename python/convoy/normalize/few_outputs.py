"""Convolutions to few channels as convolutions to more of them, whose patches are added up.

Tensor cores compute 64 channels of results at once, or 32: the last layer of a generator, a
super-resolution or a denoising network has 3, so that 95% of its arithmetic is of zeros. Instead,
each column of the filter gives channels of its own: a filter (k, r, s, c) becomes one of
(s * k, r, 1, c), with a part of the work, and a sum over shifted columns is left, which one
element-wise kernel computes together with the bias and the activation behind it. All taps of a
transposed convolution become channels: it is a product of matrices, and the same kind of sum.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    padding4,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ops import DGRAD, conv_attrs
from ..ops.conv_attrs import has_normal_layouts
from ..ops.fold import MOST_WRITTEN_OUT, fold

#: Channels of results that a block computes at least.
_TILE = 64
#: Multiply-adds of tensor cores in the time in which an element is moved, and a kernel launched.
_OF_ELEMENT, _OF_LAUNCH = 100, 400_000_000
#: How many times the work has to be saved, since these are estimates.
_LEAST_GAIN = 1.5


class FoldFewOutputs(Rewriter):
    """Of 16-bit images in NHWC by constant filters in OHWI, without groups."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.conv2d", DGRAD})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        if dtype_of(data) not in HALF_DTYPES or not is_const(kernel):
            return None
        if dtype_of(call) != dtype_of(data):
            return None
        if op_name(call) == DGRAD:
            return self._transposed(call)
        if not has_normal_layouts(call) or int(call.attrs.groups) != 1:
            return None
        return self._convolution(call)

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        (n, h, w, _), columns, (k, r, s, c) = shape_of(call), shape_of(data)[2], shape_of(kernel)
        top, left, bottom, _ = padding4(call.attrs.padding)
        stride, dilation = ints(call.attrs.strides), ints(call.attrs.dilation)
        before = (s - 1) * dilation[1] - left
        if not 1 < s <= MOST_WRITTEN_OUT or stride[1] != 1 or before < 0:
            return None
        work = _work(n * h * columns, r * c, s * k) + _summing(n * h * columns * s * k)
        if _LEAST_GAIN * work > _work(n * h * w, r * s * c, k):
            return None
        # Patches reach to the right of their column, a filter's columns see what lies to the left.
        filters = as_numpy(kernel).transpose(2, 0, 1, 3)[::-1].reshape(s * k, r, 1, c)
        part = call_like(
            call, [data, make_const(np.ascontiguousarray(filters), dtype_of(kernel))],
            strides=[stride[0], 1], dilation=[dilation[0], 1], padding=[top, 0, bottom, 0],
        )  # fmt: skip
        patches = self.emit(relax.op.reshape(self.emit(part), (n, h, columns, 1, s, k)))
        return fold(patches, (h, w), (1, 1), (0, before), (1, dilation[1]))

    def _transposed(self, call: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        attrs = conv_attrs(call)
        if not attrs.is_normal or attrs.groups != 1:
            return None
        (n, h, w, _), (_, p, q, _), (k, r, s, c) = shape_of(call), shape_of(data), shape_of(kernel)
        taps = [-(-r // attrs.strides[0]), -(-s // attrs.strides[1])]  # that a result sums up
        if taps[0] * taps[1] > MOST_WRITTEN_OUT:
            return None
        work = _work(n * p * q, k, r * s * c) + _summing(n * p * q * r * s * c)
        if _LEAST_GAIN * work > _work(n * h * w, taps[0] * taps[1] * k, c):
            return None
        filters = as_numpy(kernel).transpose(1, 2, 3, 0).reshape(r * s * c, 1, 1, k)
        part = relax.op.nn.conv2d(
            data, make_const(np.ascontiguousarray(filters), dtype_of(kernel)),
            data_layout="NHWC", kernel_layout="OHWI",
        )  # fmt: skip
        patches = self.emit(relax.op.reshape(self.emit(part), (n, p, q, r, s, c)))
        return fold(patches, (h, w), attrs.strides, attrs.padding[:2], attrs.dilation)


def _work(pixels: int, depth: int, channels: int) -> int:
    """Multiply-adds of a product, those of zeros among them."""
    return pixels * depth * -(-channels // _TILE) * _TILE


def _summing(elements: int) -> int:
    """The same of a kernel that adds up what another one has to write."""
    return _OF_ELEMENT * 2 * elements + _OF_LAUNCH

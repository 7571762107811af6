"""Split grouped convolutions with long filters into sums of convolutions with shorter ones.

Libraries have no tensor core kernels for groups of few channels; Convoy's own support filters of up
to 32 rows and columns. The positional convolution of speech encoders has 128 taps: it becomes four
convolutions of 32 taps, each of which adds the previous result.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    padding4,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ops.conv_attrs import has_normal_layouts

#: Taps along an axis, and channels of a group, that kernels for grouped convolutions take.
MOST_TAPS, MOST_CHANNELS = 32, 128


class SplitLongFilters(Rewriter):
    """Of 16-bit convolutions with channels last and constant weights, along one axis."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.conv2d"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        if not has_normal_layouts(call) or not is_const(kernel):
            return None
        _, r, s, channels = shape_of(kernel)
        if int(call.attrs.groups) == 1 or not 1 < channels <= MOST_CHANNELS:
            return None
        if dtype_of(data) not in HALF_DTYPES or (r > MOST_TAPS) == (s > MOST_TAPS):
            return None
        axis = 1 if r > MOST_TAPS else 2
        total: relax.Expr | None = None
        for first in range(0, max(r, s), MOST_TAPS):
            part = self._part(call, axis, first)
            if part is not None:
                total = part if total is None else self.emit(relax.op.add(part, total))
        return total

    def _part(self, call: relax.Call, axis: int, first: int) -> relax.Expr | None:
        """The convolution with the taps of an axis from ``first`` on; None if all of them lie in
        the padding."""
        data, kernel = call.args
        weights = as_numpy(kernel)
        taken = [slice(None)] * 4
        taken[axis] = slice(first, first + MOST_TAPS)
        weights = weights[tuple(taken)]
        stride, dilation = ints(call.attrs.strides)[axis - 1], ints(call.attrs.dilation)[axis - 1]
        size, outputs = shape_of(data)[axis], shape_of(call)[axis]
        padding = list(padding4(call.attrs.padding))
        before = padding[axis - 1] - first * dilation
        reach = (outputs - 1) * stride + (weights.shape[axis] - 1) * dilation + 1
        after = reach - before - size  # beyond the data; less than zero inside of it
        begin, end = max(0, -before), min(size, size + after)
        if begin >= end:
            return None
        if (begin, end) != (0, size):
            data = self.emit(relax.op.strided_slice(data, [axis], [begin], [end]))
        padding[axis - 1], padding[axis + 1] = max(0, before), max(0, after)
        part = call_like(call, [data, make_const(weights)], padding=padding)
        return self.emit(part)

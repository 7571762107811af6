"""Stem convolutions: few input channels made into a number that tensor cores can load.

Both rewrites are exact: the channels, rows and columns that they add hold zeros in the weights.
They are written as padding and reshapes of the input, which TVM fuses with the entry cast and
layout conversion into one elementwise kernel.
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
    rank_of,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ops import WGRAD, conv_attrs
from .gathered_columns import GatheredColumns

#: A stem has fewer input channels than this.
FEW_CHANNELS = 8
#: Channels that kernels of convolutions over volumes load at once.
VOLUME_MULTIPLE = 8
#: Filters of stride 1 with so many columns are left as they are: there are kernels for them.
_WIDEST_STEM = 3


class PadStemChannels(Rewriter):
    """Zero-pads the input channels of 16-bit convolutions with few channels to a multiple of
    ``multiple``, of those over volumes to one of eight; with ``pixels_as_channels`` strided ones
    are folded first, and the columns of wide filters gathered.

    Where the weights are no constant (a training step) they are padded at run time, and so is the
    input of the filter's gradient, whose added channels are cut off again.

    Attributes:
        changed: Whether a convolution was rewritten.
    """

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.conv2d", "relax.nn.conv3d", WGRAD})

    def __init__(self, multiple: int, pixels_as_channels: bool) -> None:
        super().__init__()
        self.multiple, self.pixels_as_channels = multiple, pixels_as_channels
        self._padded: dict[tuple[relax.Expr, int], relax.Expr] = {}
        self.changed = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        found = self._rewritten(call)
        self.changed |= found is not None
        return found

    def _rewritten(self, call: relax.Call) -> relax.Expr | None:
        if op_name(call) == WGRAD:
            return self._wgrad(call)
        data, kernel = call.args
        channels, layout = shape_of(data)[-1], str(call.attrs.kernel_layout)
        if dtype_of(data) not in HALF_DTYPES or channels >= FEW_CHANNELS:
            return None
        if int(call.attrs.groups) != 1 or layout not in ("OHWI", "ODHWI"):
            return None
        if layout == "ODHWI" and self.multiple > 1:
            return self._wider(call, -channels % VOLUME_MULTIPLE)
        if not is_const(kernel):
            extra = -channels % self.multiple
            return self._wider(call, extra) if extra else None
        changed: dict[str, list[int]] = {}
        weights, plan = as_numpy(kernel), self._presentation(call)
        if plan is not None:
            data, weights, changed = plan.data(self, data), plan.weights(weights), plan.attrs
        extra = -weights.shape[3] % (16 if changed and weights.shape[3] > 8 else self.multiple)
        if extra:
            data = self.emit(relax.op.nn.pad(data, [0, 0, 0, 0, 0, 0, 0, extra]))
            weights = np.pad(weights, ((0, 0), (0, 0), (0, 0), (0, extra)))
        if not extra and not changed:
            return None
        return call_like(call, [data, make_const(weights)], **changed)

    def _presentation(self, call: relax.Call) -> FoldedStride | GatheredColumns | None:
        """How a convolution of images presents pixels as channels; None if it does not."""
        if not self.pixels_as_channels or str(call.attrs.kernel_layout) != "OHWI":
            return None
        if can_fold_stride(call):
            return FoldedStride.of(call)
        wide = shape_of(call.args[1])[2] > _WIDEST_STEM and set(ints(call.attrs.strides)) == {1}
        return GatheredColumns.of(call) if wide else None

    def _wider(self, call: relax.Call, extra: int) -> relax.Call:
        """The convolution with this number of additional input channels."""
        return call_like(call, [self._pad(arg, extra) for arg in call.args])

    def _wgrad(self, call: relax.Call) -> relax.Expr | None:
        dy, x = call.args
        channels, attrs = shape_of(x)[3], conv_attrs(call)
        if dtype_of(x) not in HALF_DTYPES or channels >= FEW_CHANNELS:
            return None
        if attrs.groups != 1 or not attrs.is_normal or -channels % self.multiple == 0:
            return None
        wide = self.emit(call_like(call, [dy, self._pad(x, -channels % self.multiple)]))
        return relax.op.strided_slice(wide, [3], [0], [channels])

    def _pad(self, expr: relax.Expr, extra: int) -> relax.Expr:
        """Pad the last axis of ``expr`` with zeros, once for all readers."""
        if (expr, extra) not in self._padded:
            width = [0] * (2 * rank_of(expr) - 1)
            if is_const(expr):
                pairs = [(0, 0)] * (rank_of(expr) - 1)
                padded = make_const(np.pad(as_numpy(expr), (*pairs, (0, extra))))
            else:
                padded = relax.op.nn.pad(expr, [*width, extra])
            self._padded[expr, extra] = self.emit(padded)
        return self._padded[expr, extra]


def can_fold_stride(call: relax.Call) -> bool:
    """Strided in both directions, undilated."""
    stride, dilation = ints(call.attrs.strides), ints(call.attrs.dilation)
    return min(stride) > 1 and dilation == (1, 1)


class FoldedStride:
    """A strided convolution as a stride-1 convolution of blocks of pixels (space to depth).

    Along one axis with stride ``s``, top padding ``t`` and filter length ``r`` the output is
    ``y[p] = sum_i x[s p + i - t] w[i]``. With ``lead = -t mod s`` zeros in front of the filter it
    starts at a multiple of ``s``: ``s (p - T)`` with ``T = ceil(t / s)``, so that in blocks of
    ``s`` pixels it is a filter of ``ceil((r + lead) / s)`` blocks with padding ``T``. The input is
    zero-padded or cropped to the blocks that the output reads, padding included: without padding
    a filter row reads neighbouring elements, which kernels can take as one long tap.
    """

    def __init__(
        self,
        size: tuple[int, int],
        filter_size: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int, int, int],
    ) -> None:
        self.size, self.stride = size, stride
        self.lead, self.filter_blocks, self.blocks = [0, 0], [0, 0], [0, 0]
        before, after = [0, 0], [0, 0]
        for i in range(2):
            s, front, back = stride[i], padding[i], padding[i + 2]
            out = (size[i] + front + back - filter_size[i]) // s + 1
            self.lead[i] = -front % s
            before[i] = -(-front // s)
            self.filter_blocks[i] = -(-(filter_size[i] + self.lead[i]) // s)
            needed = out + self.filter_blocks[i] - 1 - before[i]
            self.blocks[i] = min(-(-size[i] // s), needed)
            after[i] = needed - self.blocks[i]
        self.filter_size = filter_size
        self.padding = (before[0], before[1], after[0], after[1])

    @property
    def attrs(self) -> dict[str, list[int]]:
        """Attributes of the convolution that differ."""
        return {"strides": [1, 1], "padding": [0, 0, 0, 0]}

    @classmethod
    def of(cls, call: relax.Call) -> FoldedStride:
        _, h, w, _ = shape_of(call.args[0])
        _, r, s, _ = shape_of(call.args[1])
        stride = ints(call.attrs.strides)
        return cls((h, w), (r, s), (stride[0], stride[1]), padding4(call.attrs.padding))

    def data(self, p: Rewriter, x: relax.Expr) -> relax.Expr:
        """(n, h, w, c) -> (n, blocks_h, blocks_w, stride_h * stride_w * c), padding included."""
        n, _, _, c = shape_of(x)
        (sh, sw), (bh, bw) = self.stride, self.blocks
        extent = (bh * sh, bw * sw)
        keep = [min(self.size[i], extent[i]) for i in range(2)]
        if tuple(keep) != self.size:
            x = p.emit(relax.op.strided_slice(x, [1, 2], [0, 0], keep))
        grow = [extent[i] - keep[i] for i in range(2)]
        if any(grow):
            x = p.emit(relax.op.nn.pad(x, [0, 0, 0, grow[0], 0, grow[1], 0, 0]))
        x = p.emit(relax.op.reshape(x, (n, bh, sh, bw, sw, c)))
        x = p.emit(relax.op.permute_dims(x, [0, 1, 3, 2, 4, 5]))
        x = p.emit(relax.op.reshape(x, (n, bh, bw, sh * sw * c)))
        top, left, bottom, right = self.padding
        if not any(self.padding):
            return x
        return p.emit(relax.op.nn.pad(x, [0, 0, top, bottom, left, right, 0, 0]))

    def weights(self, w: np.ndarray) -> np.ndarray:
        """(k, r, s, c) -> (k, filter_blocks_h, filter_blocks_w, stride_h * stride_w * c)."""
        k, r, s, c = w.shape
        (sh, sw), (fh, fw) = self.stride, self.filter_blocks
        rows = (self.lead[0], fh * sh - r - self.lead[0])
        columns = (self.lead[1], fw * sw - s - self.lead[1])
        w = np.pad(w, ((0, 0), rows, columns, (0, 0)))
        w = w.reshape(k, fh, sh, fw, sw, c).transpose(0, 1, 3, 2, 4, 5)
        return w.reshape(k, fh, fw, sh * sw * c)

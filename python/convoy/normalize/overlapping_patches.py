"""Recognize sums of overlapping patches in transposed convolutions.

A filter that moves each of its input channels to one tap computes nothing: PyTorch's ``fold``,
ONNX's ``Col2Im`` and overlapping frames of audio are written so.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    dtype_of,
    is_const,
    padding_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..ops.conv_attrs import per_axis
from ..ops.fold import fold


class RecognizeFolds(Rewriter):
    """Rewrite such transposed convolutions as :func:`~convoy.ops.fold.fold`."""

    ops: ClassVar[frozenset[str] | None] = relax_ops(
        "nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose"
    )

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        (x, filters), attrs, rank = call.args, call.attrs, rank_of(call) - 2
        spatial, groups = "DHW"[3 - rank :], int(attrs.groups)
        layouts = str(attrs.data_layout), str(attrs.kernel_layout)
        if not is_const(filters) or dtype_of(x) != dtype_of(call):
            return None
        if sorted(layouts[0]) != sorted(f"NC{spatial}") or layouts[1] != f"IO{spatial}":
            return None
        if not _moves(as_numpy(filters), groups):
            return None
        order = tuple(layouts[0].index(letter) for letter in f"NC{spatial}")
        n, _, *counts = (shape_of(x)[axis] for axis in order)
        _, c, *window = shape_of(filters)
        x = self.emit(relax.op.permute_dims(x, order))
        x = self.emit(relax.op.reshape(x, (n, groups * c, *window, *counts)))
        axes = range(2, 2 + 2 * rank)
        x = self.emit(relax.op.permute_dims(x, (0, *axes[rank:], *axes[:rank], 1)))
        strides, dilation = (per_axis(a, rank) for a in (attrs.strides, attrs.dilation))
        padding = padding_of(attrs.padding, rank)[:rank]
        size = [shape_of(call)[layouts[0].index(letter)] for letter in spatial]
        y = self.emit(fold(x, size, strides, padding, dilation))
        there = tuple(f"N{spatial}C".index(letter) for letter in layouts[0])
        return relax.op.permute_dims(y, there)


def _moves(filters: np.ndarray, groups: int) -> bool:
    """Whether filters (in, out of a group, taps...) move the input channels of each group to the
    taps of its outputs, in order."""
    channels, *taps = filters.shape
    of_group = channels // groups
    if of_group != math.prod(taps):
        return False
    matrices = filters.reshape(groups, of_group, of_group)
    return bool((matrices == np.eye(of_group, dtype=filters.dtype)).all())

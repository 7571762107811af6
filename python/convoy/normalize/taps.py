"""Remove filter taps that only read padding.

Filters as large as their data occur where a network has reduced its resolution: the last layers of
video models have one plane, and widely dilated filters extend beyond small images on all sides. The
remaining filter has fewer taps, down to a 1x1 convolution.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import as_numpy, call_like, ints, is_const, make_const, padding_of, shape_of
from ..graph.rewriter import Rewriter
from ..ops.conv_attrs import has_normal_layouts


class TrimFilters(Rewriter):
    """Of convolutions with channels last and constant filters."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.conv2d", "relax.nn.conv3d"})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        (data, kernel), attrs = call.args, call.attrs
        if not has_normal_layouts(call) or not is_const(kernel):
            return None
        size, window = shape_of(data)[1:-1], shape_of(kernel)[1:-1]
        axes = len(size)
        stride, dilation = (
            ints(v) * (axes if len(ints(v)) == 1 else 1) for v in (attrs.strides, attrs.dilation)
        )
        padding = list(padding_of(attrs.padding, axes))
        kept = [slice(None)]
        for i in range(axes):
            ends = padding[i], padding[i + axes]
            first, rest = unseen(size[i], window[i], stride[i], dilation[i], ends)
            padding[i] -= first * dilation[i]
            padding[i + axes] -= rest * dilation[i]
            kept.append(slice(first, window[i] - rest))
        weights = as_numpy(kernel)
        left = weights[tuple(kept)]
        if left.shape == weights.shape:
            return None
        return call_like(call, [data, make_const(left)], padding=padding)


def unseen(
    size: int, window: int, stride: int, dilation: int, padding: tuple[int, int]
) -> tuple[int, int]:
    """Taps at the beginning and at the end of a filter that see only padding along an axis, as many
    as padding can be taken away for."""
    before, after = padding
    outputs = (size + before + after - dilation * (window - 1) - 1) // stride + 1

    def sees(tap: int) -> bool:
        starts = range(tap * dilation - before, tap * dilation - before + outputs * stride, stride)
        return any(0 <= at < size for at in starts)

    seen = [tap for tap in range(window) if sees(tap)]
    if not seen:
        return 0, 0
    return min(seen[0], before // dilation), min(window - 1 - seen[-1], after // dilation)

"""The workload of a convolution's gradient."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..graph.expr import dtype_of, shape_of
from ..ir.depth import IMAGES, Depth
from ..ir.dtypes import FLOAT_DTYPES, accumulator
from ..ir.workload import Workload
from ..ir.workload_fields import Op
from .conv_attrs import WGRAD, conv_attrs


def forward_workload(call: relax.Call) -> Workload | None:
    """The workload of a call in normal layouts; None if there is none: operands of different or
    unknown dtypes, or padding that cuts off rows."""
    attrs = conv_attrs(call)
    dtypes = {dtype_of(arg) for arg in call.args}
    if not attrs.is_normal or len(dtypes) != 1 or not dtypes <= {*FLOAT_DTYPES}:
        return None
    if attrs.out_dtype not in FLOAT_DTYPES or min(attrs.padding) < 0:
        return None
    (n, *_, k), other = map(shape_of, call.args)
    if call.op.name == WGRAD:
        op: Op = "wgrad"
        x, window = other, attrs.size
    else:
        op = "dgrad"
        x, window = (n, *attrs.size, other[-1] * attrs.groups), other[1:-1]
    return conv_workload(
        op, x, (k, *window), attrs.strides, attrs.padding, attrs.dilation,
        attrs.groups, dtypes.pop(), attrs.out_dtype,
    )  # fmt: skip


def conv_workload(
    op: Op,
    x: Sequence[int],
    filters: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: str,
    out_dtype: str,
) -> Workload:
    """The workload of a forward convolution, or of its gradient, with two or three spatial axes.

    Args:
        x: Shape of the input, (n, ..., c).
        filters: Number and extents of the filters, (k, ...).
    """
    (n, *size, c), (k, *window) = x, filters
    before, after = padding[: len(size)], padding[len(size) :]
    depth = IMAGES
    if len(size) == 3:
        depth = Depth(size[0], window[0], stride[0], (before[0], after[0]), dilation[0])
    (h, w), (r, s) = size[-2:], window[-2:]
    return Workload(
        op, n, h, w, c, k, r, s,
        stride=(stride[-2], stride[-1]),
        padding=(before[-2], before[-1], after[-2], after[-1]),
        dilation=(dilation[-2], dilation[-1]),
        groups=groups, dtype=dtype, out_dtype=out_dtype, acc_dtype=accumulator(dtype), depth=depth,
    )  # fmt: skip

"""The workload of a convolution's gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from ..graph.expr import FLOAT_DTYPES, dtype_of, shape_of
from ..ir.depth import Depth
from .conv_attrs import WGRAD, conv_attrs


def forward_workload(call: relax.Call) -> dict[str, Any] | None:
    """Fields of the ``Workload`` of a call in normal layouts; None if there is none: operands
    of different or unknown dtypes, or padding that cuts off rows."""
    attrs = conv_attrs(call)
    dtypes = {dtype_of(arg) for arg in call.args}
    if not attrs.is_normal or len(dtypes) != 1 or not dtypes <= {*FLOAT_DTYPES}:
        return None
    if attrs.out_dtype not in FLOAT_DTYPES or min(attrs.padding) < 0:
        return None
    (n, *_, k), (_, *other, last) = map(shape_of, call.args)
    if call.op.name == WGRAD:
        size, window, c = tuple(other), attrs.size, last
    else:
        size, window, c = attrs.size, tuple(other), last * attrs.groups
    return {
        "op": "wgrad" if call.op.name == WGRAD else "dgrad", "n": n, "c": c, "k": k,
        **spatial_fields(size, window, attrs.strides, attrs.padding, attrs.dilation),
        "groups": attrs.groups, "dtype": dtypes.pop(), "out_dtype": attrs.out_dtype,
    }  # fmt: skip


def spatial_fields(
    size: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> dict[str, Any]:
    """Fields of a ``Workload`` for the two or three spatial axes of a forward convolution."""
    fields: dict[str, Any] = {}
    before, after = padding[: len(size)], padding[len(size) :]
    if len(size) == 3:
        ends = (before[0], after[0])
        fields["depth"] = Depth(size[0], window[0], stride[0], ends, dilation[0])
    (h, w), (r, s) = size[-2:], window[-2:]
    return fields | {
        "h": h, "w": w, "r": r, "s": s, "stride": tuple(stride[-2:]),
        "padding": (*before[-2:], *after[-2:]), "dilation": tuple(dilation[-2:]),
    }  # fmt: skip

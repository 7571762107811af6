"""Forward convolutions.

Relax lowers any plain layout, so that the layouts pass through. NCHWc is brought to NCHW first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from convoy.relay.convert.context import OpCall, RelaxExpr, converter
from convoy.relay.convert.layouts import from_plain, to_plain
from convoy.relay.infer.nn_conv import total_padding
from convoy.relay.layout import layout

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_CONV = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


def flat_padding(padding: Sequence[int], rank: int) -> list[int]:
    """Padding as Relax wants it: all values before, then all values after."""
    pairs = total_padding([int(p) for p in padding], rank)
    return [b for b, _ in pairs] + [a for _, a in pairs]


def _conv(op: OpCall, rank: int) -> RelaxExpr:
    attrs, axes = op.attrs, "NC" + _SPATIAL[rank]
    data_layout = layout(attrs["data_layout"], axes)
    kernel_layout = layout(attrs["kernel_layout"], "OI" + _SPATIAL[rank])
    out_layout = layout(attrs["out_layout"] or attrs["data_layout"], axes)
    data, weight = op.args
    plain = data_layout.axes
    if not data_layout.is_plain:
        data = to_plain(op, data, data_layout, op.shape(0))
    if not kernel_layout.is_plain:
        weight = to_plain(op, weight, kernel_layout, op.shape(1))
    out_dtype = op.result.dtype
    result = _CONV[rank](
        data,
        weight,
        strides=_ints(attrs["strides"]),
        padding=flat_padding(attrs["padding"], rank),
        dilation=_ints(attrs["dilation"]),
        groups=attrs.get_int("groups"),
        data_layout=plain,
        kernel_layout=kernel_layout.axes,
        out_dtype=out_dtype,
    )
    if out_layout.name == plain:
        return result
    return from_plain(op, op.emit(result), plain, out_layout, op.result)


def _ints(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


@converter("nn.conv1d")
def conv1d(op: OpCall) -> RelaxExpr:
    return _conv(op, 1)


@converter("nn.conv2d", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv2d(op: OpCall) -> RelaxExpr:
    return _conv(op, 2)


@converter("nn.conv3d")
def conv3d(op: OpCall) -> RelaxExpr:
    return _conv(op, 3)

"""Group and instance norms by sums of squared distances from the mean.

TVM subtracts the square of the mean from the mean of the squares: of data far from zero nothing is
left of the digits, and a variance below zero gives NaN.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, op_name, shape_of


def norm(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize a norm as operators, in float32 for data of 16 bits."""
    attrs, (x, gamma, beta), shape = call.attrs, call.args, shape_of(call)
    channel = int(attrs.channel_axis) % len(shape)
    axes = [axis % len(shape) for axis in ints(attrs.axes)]
    split = shape
    if op_name(call) == "relax.nn.group_norm":
        groups = int(attrs.num_groups)
        split = (*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :])
        axes = [channel + 1, *(axis + (axis > channel) for axis in axes)]
    dtype = dtype_of(x) if dtype_of(x) == "float64" else "float32"

    def spread(values: relax.Expr) -> relax.Expr:
        of_channels = [shape[i] if i == channel else 1 for i in range(len(shape))]
        return bb.emit(op.reshape(_cast(bb, values, dtype), of_channels))

    data = bb.emit(op.reshape(_cast(bb, x, dtype), split))
    away = bb.emit(op.subtract(data, bb.emit(op.mean(data, axes, keepdims=True))))
    variance = bb.emit(op.mean(bb.emit(op.multiply(away, away)), axes, keepdims=True))
    variance = bb.emit(op.add(variance, relax.const(float(attrs.epsilon), dtype)))
    normal = bb.emit(op.multiply(away, bb.emit(op.rsqrt(variance))))
    result = bb.emit(op.reshape(normal, shape))
    if attrs.scale:
        result = bb.emit(op.multiply(result, spread(gamma)))
    if attrs.center:
        result = bb.emit(op.add(result, spread(beta)))
    return _cast(bb, result, dtype_of(call))


def _cast(bb: relax.BlockBuilder, value: relax.Expr, dtype: str) -> relax.Expr:
    return value if dtype_of(value) == dtype else bb.emit(op.astype(value, dtype))

"""Layout rules of operators on channels-last views (see ``layout.py``)."""

from __future__ import annotations

import math

from tvm import relax

from ..graph.expr import (
    attr_fields,
    call_like,
    dtype_of,
    ints,
    op_name,
    padding_of,
    rank_of,
    shape_of,
)
from ..ops import DGRAD, WGRAD, conv2d_dgrad, conv3d_dgrad, conv_attrs
from ..ops.activation import ELU, HARDSWISH, MISH
from ..ops.activation_backward import ACTIVATION_BACKWARD
from ..ops.batch_norm import BACKWARD
from ..ops.elementwise import RELU_BACKWARD
from ..ops.pool_backward import AVG_POOL, MAX_POOL
from .layout import DATA, KERNEL, ChannelsLast, rule


def _rank(call: relax.Call) -> int:
    """Axes of the data of an operator on images or on volumes, which is in its name."""
    return 5 if "3d" in op_name(call) else 4


# -- convolutions and pools: always channels last ----------------------------------------------


@rule("nn.conv2d", "nn.conv3d")
def _conv(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    attrs, name, last = call.attrs, call.op.name[6:], DATA[_rank(call)]
    filters = KERNEL[_rank(call)]
    data = p.ordered(call.args[0], str(attrs.data_layout), last, f"data of {name}")
    kernel = p.ordered(call.args[1], str(attrs.kernel_layout), filters, f"kernel of {name}")
    out = str(attrs.out_layout or attrs.data_layout)
    layouts = {"data_layout": last, "kernel_layout": filters, "out_layout": last}
    return p.restored(p.emit(call_like(call, [data, kernel], **layouts)), out)


@rule("nn.conv2d_transpose", "nn.conv3d_transpose")
def _conv_transpose(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    """The input gradient of a convolution from its output's channels to its input's."""
    attrs, name, last = call.attrs, call.op.name[6:], DATA[_rank(call)]
    spatial = last[1:-1]
    data = p.ordered(call.args[0], str(attrs.data_layout), last, f"data of {name}")
    kernel = p.ordered(call.args[1], str(attrs.kernel_layout), f"I{spatial}O", f"kernel of {name}")
    out = str(attrs.out_layout or attrs.data_layout)
    size = [shape_of(call)[out.index(axis)] for axis in spatial]
    if len(spatial) == 3 and _tiles(call, data, kernel, size):
        return p.restored(_blocks(p, data, kernel, size, dtype_of(call)), out)
    gradient = conv3d_dgrad if len(spatial) == 3 else conv2d_dgrad
    result = gradient(
        data, kernel, size, strides=ints(attrs.strides),
        padding=padding_of(attrs.padding, len(spatial)), dilation=ints(attrs.dilation),
        groups=int(attrs.groups), out_dtype=dtype_of(call),
    )  # fmt: skip
    return p.restored(p.emit(result), out)


def _tiles(call: relax.Call, data: relax.Expr, kernel: relax.Expr, size: list[int]) -> bool:
    """Whether a transposed convolution over volumes makes blocks that do not overlap: its stride is
    its filter."""
    attrs, window, inputs = call.attrs, shape_of(kernel)[1:4], shape_of(data)[1:4]
    whole = all(s == k * n for s, k, n in zip(size, window, inputs, strict=True))
    padded = any(padding_of(attrs.padding, 3))
    return whole and ints(attrs.strides) == window and not padded and int(attrs.groups) == 1


def _blocks(
    p: ChannelsLast, data: relax.Expr, kernel: relax.Expr, size: list[int], dtype: str
) -> relax.Expr:
    """A transposed convolution of blocks that do not overlap, as one GEMM: each row computes the
    block of one pixel."""
    (n, d, h, w, c), (_, t, r, s, k) = shape_of(data), shape_of(kernel)
    rows = p.emit(relax.op.reshape(data, (n * d * h * w, c)))
    filters = p.emit(relax.op.reshape(kernel, (c, t * r * s * k)))
    blocks = p.emit(relax.op.matmul(rows, filters, dtype))
    apart = p.emit(relax.op.reshape(blocks, (n, d, h, w, t, r, s, k)))
    apart = p.emit(relax.op.permute_dims(apart, [0, 1, 4, 2, 5, 3, 6, 7]))
    return p.emit(relax.op.reshape(apart, (n, *size, k)))


@rule(DGRAD, WGRAD)
def _conv2d_backward(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    attrs, is_dgrad, (dy, other) = conv_attrs(call), call.op.name == DGRAD, call.args
    dy = p.ordered(dy, attrs.data_layout, "NHWC", "dy of a convolution's gradient")
    if is_dgrad:
        other = p.ordered(other, attrs.kernel_layout, "OHWI", "kernel of conv2d_dgrad")
    else:
        other = p.ordered(other, attrs.data_layout, "NHWC", "data of conv2d_wgrad")
    result = p.emit(call_like(call, [dy, other], data_layout="NHWC", kernel_layout="OHWI"))
    if is_dgrad:
        return p.restored(result, attrs.data_layout)
    axes = ["OHWI".index(letter) for letter in attrs.kernel_layout]
    return p.emit(relax.op.permute_dims(result, axes)) if axes != [0, 1, 2, 3] else result


@rule(MAX_POOL, AVG_POOL)
def _pool2d_backward(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    layout = str(call.attrs["layout"])
    args = [p.ordered(arg, layout, "NHWC", "operand of a 2d pool's gradient") for arg in call.args]
    return p.restored(p.emit(call_like(call, args, layout="NHWC")), layout)


@rule("nn.batch_norm", BACKWARD)
def _training_norm(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    """Batch norms of a training step; the first result is in the data's layout, the others are
    vectors."""
    data, rank = 2 if call.op.name == BACKWARD else 1, rank_of(call.args[0])
    axis = int(attr_fields(call.attrs)["axis"])
    if rank not in p.to_last or axis % rank != 1:
        return None
    if not any(p.has_view(arg) for arg in call.args[:data]):
        return None
    args = [*(p.view(arg) for arg in call.args[:data]), *call.args[data:]]
    both = p.emit(call_like(call, args, axis=rank - 1))
    items = [p.emit(relax.TupleGetItem(both, i)) for i in range(len(both.ty.fields))]
    return relax.Tuple([p.unview(items[0]), *items[1:]])


@rule(
    "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d",
    "nn.max_pool3d", "nn.avg_pool3d", "nn.adaptive_avg_pool3d",
)  # fmt: skip
def _pool(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    layout, last = str(call.attrs.layout), DATA[_rank(call)]
    data = p.ordered(call.args[0], layout, last, f"data of {call.op.name[6:]}")
    out = str(call.attrs.out_layout or layout)
    return p.restored(p.emit(call_like(call, [data], layout=last, out_layout=last)), out)


@rule("image.resize2d", "image.resize3d")
def _resize(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if str(call.attrs.layout) not in ("NCHW", "NCDHW") or not p.has_view(call.args[0]):
        return None
    args = [p.view(call.args[0]), *call.args[1:]]
    return p.unview(p.emit(call_like(call, args, layout=DATA[_rank(call)])))


# -- elementwise -------------------------------------------------------------------------------


@rule(
    "nn.relu", "nn.relu6", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.selu", "nn.silu",
    "nn.softplus", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "square", "abs", "negative",
    "erf", "floor", "ceil", "round", "sign", "sin", "cos", "clip", "astype", "logical_not",
    "bitwise_not", "isfinite", "isinf", "isnan", "zeros_like", "ones_like", HARDSWISH, ELU, MISH,
)  # fmt: skip
def _unary(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    return p.unview(p.emit(call_like(call, [p.view(call.args[0]), *call.args[1:]])))


@rule(
    "add", "subtract", "multiply", "divide", "floor_divide", "power", "maximum", "minimum", "mod",
    "floor_mod", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "left_shift", "right_shift", "bitwise_and",
    "bitwise_or", "bitwise_xor", "where", RELU_BACKWARD, ACTIVATION_BACKWARD,
)  # fmt: skip
def _broadcasting(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    rank = rank_of(call)
    if rank not in p.to_last or not any(
        p.has_view(arg) and rank_of(arg) == rank for arg in call.args
    ):
        return None
    return p.unview(p.emit(call_like(call, [_operand_view(p, arg, rank) for arg in call.args])))


def _operand_view(p: ChannelsLast, expr: relax.Expr, rank: int) -> relax.Expr:
    """View of an operand that is broadcast to this number of axes."""
    shape = shape_of(expr)
    if math.prod(shape) == 1 and not p.has_view(expr):
        return expr if len(shape) < rank else p.view(expr)
    if len(shape) < rank:
        expr = p.emit(relax.op.reshape(expr, (1,) * (rank - len(shape)) + shape))
    return p.view(expr)


@rule("nn.prelu")
def _prelu(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    axis = p.axis(call.attrs.axis, rank_of(call))
    return p.unview(p.emit(call_like(call, [p.view(call.args[0]), call.args[1]], axis=axis)))

"""Layout rules of operators on channels-last views (see ``layout.py``)."""

from __future__ import annotations

import math

from tvm import relax

from ..graph.expr import attr_fields, call_like, dtype_of, ints, padding4, rank_of, shape_of
from ..ops import DGRAD, WGRAD, conv2d_dgrad, conv_attrs
from ..ops.activation import ELU, HARDSWISH, MISH
from ..ops.batch_norm import BACKWARD
from ..ops.elementwise import RELU_BACKWARD
from ..ops.pool_backward import AVG_POOL, MAX_POOL
from .layout import TO_NHWC, ChannelsLast, rule

_AXIS = {0: 0, 1: 3, 2: 1, 3: 2}  # axis in the model's order -> axis in the view


def _viewed(p: ChannelsLast, expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and rank_of(expr) == 4 and p.has_view(expr)


# -- convolutions and pools: always channels last ----------------------------------------------


@rule("nn.conv2d")
def _conv2d(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    attrs = call.attrs
    data = p.ordered(call.args[0], str(attrs.data_layout), "NHWC", "data of nn.conv2d")
    kernel = p.ordered(call.args[1], str(attrs.kernel_layout), "OHWI", "kernel of nn.conv2d")
    out = str(attrs.out_layout or attrs.data_layout)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    return p.restored(p.emit(call_like(call, [data, kernel], **layouts)), out)


@rule("nn.conv2d_transpose")
def _conv2d_transpose(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    """The input gradient of a convolution from its output's channels to its input's."""
    attrs = call.attrs
    data = p.ordered(call.args[0], str(attrs.data_layout), "NHWC", "data of nn.conv2d_transpose")
    kernel = p.ordered(
        call.args[1], str(attrs.kernel_layout), "IHWO", "kernel of nn.conv2d_transpose"
    )
    out = str(attrs.out_layout or attrs.data_layout)
    shape = shape_of(call)
    size = [shape[out.index("H")], shape[out.index("W")]]
    result = conv2d_dgrad(
        data, kernel, size, ints(attrs.strides), padding4(attrs.padding), ints(attrs.dilation),
        int(attrs.groups), out_dtype=dtype_of(call),
    )  # fmt: skip
    return p.restored(p.emit(result), out)


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
    data = 2 if call.op.name == BACKWARD else 1
    axis = int(attr_fields(call.attrs)["axis"])
    if rank_of(call.args[0]) != 4 or axis % 4 != 1:
        return None
    if not any(_viewed(p, arg) for arg in call.args[:data]):
        return None
    args = [*(p.view(arg) for arg in call.args[:data]), *call.args[data:]]
    both = p.emit(call_like(call, args, axis=3))
    items = [p.emit(relax.TupleGetItem(both, i)) for i in range(len(both.ty.fields))]
    return relax.Tuple([p.unview(items[0]), *items[1:]])


@rule("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
def _pool2d(p: ChannelsLast, call: relax.Call) -> relax.Expr:
    layout = str(call.attrs.layout)
    data = p.ordered(call.args[0], layout, "NHWC", "data of a 2d pool")
    out = str(call.attrs.out_layout or layout)
    return p.restored(p.emit(call_like(call, [data], layout="NHWC", out_layout="NHWC")), out)


@rule("image.resize2d")
def _resize2d(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if str(call.attrs.layout) != "NCHW" or not _viewed(p, call.args[0]):
        return None
    args = [p.view(call.args[0]), *call.args[1:]]
    return p.unview(p.emit(call_like(call, args, layout="NHWC")))


# -- elementwise -------------------------------------------------------------------------------


@rule(
    "nn.relu", "nn.relu6", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.selu", "nn.silu",
    "nn.softplus", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "square", "abs", "negative",
    "erf", "floor", "ceil", "round", "sign", "sin", "cos", "clip", "astype", "logical_not",
    "bitwise_not", "isfinite", "isinf", "isnan", "zeros_like", "ones_like", HARDSWISH, ELU, MISH,
)  # fmt: skip
def _unary(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    return p.unview(p.emit(call_like(call, [p.view(call.args[0]), *call.args[1:]])))


@rule(
    "add", "subtract", "multiply", "divide", "floor_divide", "power", "maximum", "minimum", "mod",
    "floor_mod", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "where", RELU_BACKWARD,
)  # fmt: skip
def _broadcasting(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if rank_of(call) != 4 or not any(_viewed(p, arg) for arg in call.args):
        return None
    return p.unview(p.emit(call_like(call, [_operand_view(p, arg) for arg in call.args])))


def _operand_view(p: ChannelsLast, expr: relax.Expr) -> relax.Expr:
    """View of an operand that is broadcast, whatever its rank."""
    shape = shape_of(expr)
    if math.prod(shape) == 1 and not p.has_view(expr):
        return expr if len(shape) < 4 else p.view(expr)
    if len(shape) < 4:
        expr = p.emit(relax.op.reshape(expr, (1,) * (4 - len(shape)) + shape))
    return p.view(expr)


@rule("nn.prelu")
def _prelu(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    axis = _AXIS[int(call.attrs.axis) % 4]
    return p.unview(p.emit(call_like(call, [p.view(call.args[0]), call.args[1]], axis=axis)))


# -- along axes --------------------------------------------------------------------------------


@rule("nn.softmax", "nn.log_softmax")
def _softmax(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    axis = _AXIS[int(call.attrs.axis) % 4]
    return p.unview(p.emit(call_like(call, [p.view(call.args[0])], axis=axis)))


@rule("nn.group_norm", "nn.instance_norm")
def _group_norm(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    axes = sorted(_AXIS[a % 4] for a in ints(call.attrs.axes))
    channel = _AXIS[int(call.attrs.channel_axis) % 4]
    args = [p.view(call.args[0]), *call.args[1:]]
    return p.unview(p.emit(call_like(call, args, axes=axes, channel_axis=channel)))


@rule("mean", "sum", "max", "min", "prod", "std", "variance")
def _reduction(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    every = call.attrs.axis is None
    axes = sorted(range(4) if every else (a % 4 for a in ints(call.attrs.axis)))
    reduced = [_AXIS[a] for a in axes]
    if call.attrs.keepdims:
        return p.unview(p.emit(call_like(call, [p.view(call.args[0])], axis=reduced)))
    left = [a for a in TO_NHWC if a not in axes]
    if left != sorted(left):  # the remaining axes would come out in another order
        return None
    return call_like(call, [p.view(call.args[0])], axis=reduced)


@rule("concat")
def _concat(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if call.attrs.axis is None or rank_of(call) != 4:
        return None
    if not any(_viewed(p, field) for field in fields):
        return None
    views = relax.Tuple([p.view(field) for field in fields])
    return p.unview(p.emit(call_like(call, [views], axis=_AXIS[int(call.attrs.axis) % 4])))


@rule("split")
def _split(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    axis = _AXIS[int(call.attrs.axis) % 4]
    parts = p.emit(call_like(call, [p.view(call.args[0])], axis=axis))
    count = len(parts.ty.fields)
    return relax.Tuple([p.unview(p.emit(relax.TupleGetItem(parts, i))) for i in range(count)])


@rule("nn.pad")
def _pad(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    width = ints(call.attrs.pad_width)
    pairs = [width[2 * i : 2 * i + 2] for i in range(4)]
    moved = [amount for axis in TO_NHWC for amount in pairs[axis]]
    return p.unview(
        p.emit(call_like(call, [p.view(call.args[0]), *call.args[1:]], pad_width=moved))
    )


@rule("reshape")
def _reshape(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    source = call.args[0]
    if not (isinstance(source, relax.Var) and rank_of(source) == 4 and p.has_view(source)):
        return None
    shape = shape_of(source)
    if shape[2:] != (1, 1) and shape[1] != 1:
        return None  # the elements change their order, so the model's order is needed
    return relax.op.reshape(p.view(source), shape_of(call))


@rule("strided_slice")
def _strided_slice(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not _viewed(p, call.args[0]):
        return None
    axes = call.args[1]
    if not isinstance(axes, relax.Tuple):
        return None
    if not all(hasattr(field, "value") for field in axes.fields):
        return None
    moved = relax.Tuple([relax.prim_value(_AXIS[int(f.value) % 4]) for f in axes.fields])
    args = [p.view(call.args[0]), moved, *call.args[2:]]
    return p.unview(p.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))

"""`relay.nn`: neural network operators, with the argument conventions of TVM 0.18.

Layouts are names such as "NCHW"; a size may be one number for all axes; padding is always stored
with its values for both sides. `channels` and `kernel_size` may be None where the weight has a
type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr, TupleGetItem, TupleWrapper
from convoy.relay.builder import const
from convoy.relay.op.blocks import (  # noqa: F401  (relay.nn has them too)
    batch_to_space_nd,
    dilate,
    nll_loss,
    space_to_batch_nd,
    upsampling3d,
)
from convoy.relay.op.call import call, padding, sizes

Size = Any  # int or a sequence of int

# ---- convolutions


def _conv(name: str, rank: int, data: Expr, weight: Expr, **attrs: Any) -> Call:
    for field in ("strides", "dilation"):
        attrs[field] = sizes(attrs[field], rank)
    if attrs["kernel_size"] is not None:
        attrs["kernel_size"] = sizes(attrs["kernel_size"], rank)
    if "output_padding" in attrs:
        attrs["output_padding"] = sizes(attrs["output_padding"], rank)
    attrs["padding"] = padding(attrs["padding"], rank)
    return call(name, data, weight, **attrs)


def conv1d(
    data: Expr,
    weight: Expr,
    strides: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolution over one axis."""
    return _conv("nn.conv1d", 1, **locals())


def conv2d(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolution over two axes."""
    return _conv("nn.conv2d", 2, **locals())


def conv3d(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    dilation: Size = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolution over three axes."""
    return _conv("nn.conv3d", 3, **locals())


def conv1d_transpose(
    data: Expr,
    weight: Expr,
    strides: Size = (1,),
    padding: Size = (0,),
    dilation: Size = (1,),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str = "",
    output_padding: Size = (0,),
    out_dtype: str = "",
) -> Call:
    """Transposed convolution over one axis."""
    return _conv("nn.conv1d_transpose", 1, **locals())


def conv2d_transpose(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Size = (0, 0),
    out_dtype: str = "",
) -> Call:
    """Transposed convolution: with a forward convolution's weight, the gradient of its data."""
    return _conv("nn.conv2d_transpose", 2, **locals())


def conv3d_transpose(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    dilation: Size = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Size = (0, 0, 0),
    out_dtype: str = "",
) -> Call:
    """Transposed convolution over three axes."""
    return _conv("nn.conv3d_transpose", 3, **locals())


def conv2d_backward_weight(
    grad: Expr,
    data: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> Call:
    """The gradient of a convolution's weight, of the gradient of its result and its data.

    The operator stores the three layouts in the fields data_layout, kernel_layout, out_layout.
    """
    return _conv(
        "nn.conv2d_backward_weight",
        2,
        grad,
        data,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        channels=channels,
        kernel_size=kernel_size,
        data_layout=grad_layout,
        kernel_layout=data_layout,
        out_layout=kernel_layout,
        out_dtype=out_dtype,
    )


def contrib_conv2d_nchwc(
    data: Expr,
    kernel: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolution of data whose channels are split into blocks."""
    return _conv("nn.contrib_conv2d_NCHWc", 2, weight=kernel, **_without(locals(), "kernel"))


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k != name}


# ---- matrix products


def dense(data: Expr, weight: Expr, units: int | None = None, out_dtype: str = "") -> Call:
    """data (..., k) times weight (units, k) transposed."""
    return call("nn.dense", data, weight, units=units, out_dtype=out_dtype)


def matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    return call(
        "nn.matmul",
        tensor_a,
        tensor_b,
        units=units,
        out_dtype=out_dtype,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


def batch_matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """Products of two batches of matrices; the second is transposed unless said otherwise."""
    return call(
        "nn.batch_matmul",
        tensor_a,
        tensor_b,
        out_dtype=out_dtype,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


# ---- normalisations, biases, activations


def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """(result, moving mean, moving variance), with the statistics that are given."""
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    args = (data, gamma, beta, moving_mean, moving_var)
    return TupleWrapper(call("nn.batch_norm", *args, **attrs), 3)


def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return call("nn.layer_norm", data, gamma, beta, **attrs)


def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return call("nn.instance_norm", data, gamma, beta, **attrs)


def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return call("nn.group_norm", data, gamma, beta, num_groups=num_groups, **attrs)


def lrn(
    data: Expr,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-5,
    beta: float = 0.75,
) -> Call:
    """Local response normalisation across `size` neighbours along an axis."""
    return call("nn.lrn", data, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


def l2_normalize(data: Expr, eps: float, axis: Sequence[int] | None = None) -> Call:
    return call("nn.l2_normalize", data, eps=eps, axis=axis)


def bias_add(data: Expr, bias: Expr, axis: int = 1) -> Call:
    """Add a vector along an axis."""
    return call("nn.bias_add", data, bias, axis=axis)


def relu(data: Expr) -> Call:
    return call("nn.relu", data)


def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
    return call("nn.leaky_relu", data, alpha=alpha)


def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Call:
    return call("nn.prelu", data, alpha, axis=axis)


def softmax(data: Expr, axis: int = -1) -> Call:
    return call("nn.softmax", data, axis=axis)


def fast_softmax(data: Expr, axis: int = -1) -> Call:
    return call("nn.fast_softmax", data, axis=axis)


def log_softmax(data: Expr, axis: int = -1) -> Call:
    return call("nn.log_softmax", data, axis=axis)


def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """The identity at inference."""
    return dropout_raw(data, rate)[0]


def dropout_raw(data: Expr, rate: float = 0.5) -> TupleWrapper:
    return TupleWrapper(call("nn.dropout", data, rate=rate), 2)


def cross_entropy(predictions: Expr, targets: Expr) -> Call:
    return call("nn.cross_entropy", predictions, targets)


def cross_entropy_with_logits(predictions: Expr, targets: Expr) -> Call:
    return call("nn.cross_entropy_with_logits", predictions, targets)


# ---- pooling


def _pool(name: str, rank: int, data: Expr, **attrs: Any) -> Call:
    for field in ("pool_size", "strides", "dilation"):
        attrs[field] = sizes(attrs[field], rank)
    attrs["padding"] = padding(attrs["padding"], rank)
    return call(name, data, **attrs)


def max_pool1d(
    data: Expr,
    pool_size: Size = (1,),
    strides: Size = (1,),
    dilation: Size = (1,),
    padding: Size = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    return _pool("nn.max_pool1d", 1, **locals())


def max_pool2d(
    data: Expr,
    pool_size: Size = (1, 1),
    strides: Size = (1, 1),
    dilation: Size = (1, 1),
    padding: Size = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    return _pool("nn.max_pool2d", 2, **locals())


def max_pool3d(
    data: Expr,
    pool_size: Size = (1, 1, 1),
    strides: Size = (1, 1, 1),
    dilation: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    return _pool("nn.max_pool3d", 3, **locals())


def avg_pool1d(
    data: Expr,
    pool_size: Size = (1,),
    strides: Size = (1,),
    dilation: Size = (1,),
    padding: Size = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    return _pool("nn.avg_pool1d", 1, **locals())


def avg_pool2d(
    data: Expr,
    pool_size: Size = (1, 1),
    strides: Size = (1, 1),
    dilation: Size = (1, 1),
    padding: Size = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    return _pool("nn.avg_pool2d", 2, **locals())


def avg_pool3d(
    data: Expr,
    pool_size: Size = (1, 1, 1),
    strides: Size = (1, 1, 1),
    dilation: Size = (1, 1, 1),
    padding: Size = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    return _pool("nn.avg_pool3d", 3, **locals())


def max_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: Size = (1, 1),
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    attrs = {"layout": layout, "out_layout": out_layout, "ceil_mode": ceil_mode}
    return _pool_grad("nn.max_pool2d_grad", out_grad, data, pool_size, strides, padding, attrs)


def avg_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: Size = (1, 1),
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    attrs = {"layout": layout, "out_layout": out_layout, "ceil_mode": ceil_mode}
    attrs["count_include_pad"] = count_include_pad
    return _pool_grad("nn.avg_pool2d_grad", out_grad, data, pool_size, strides, padding, attrs)


def _pool_grad(
    name: str, grad: Expr, data: Expr, pool: Size, strides: Size, pad: Size, attrs: dict[str, Any]
) -> Call:
    attrs |= {"pool_size": sizes(pool, 2), "strides": sizes(strides, 2)}
    return call(name, grad, data, padding=padding(pad, 2), **attrs)


def global_max_pool2d(data: Expr, layout: str = "NCHW", out_layout: str = "") -> Call:
    return call("nn.global_max_pool2d", data, layout=layout, out_layout=out_layout)


def global_avg_pool2d(data: Expr, layout: str = "NCHW", out_layout: str = "") -> Call:
    return call("nn.global_avg_pool2d", data, layout=layout, out_layout=out_layout)


def _adaptive(kind: str, rank: int, layout_default: str) -> Any:
    name = f"nn.adaptive_{kind}_pool{rank}d"

    def adaptive(
        data: Expr,
        output_size: Size | None = None,
        layout: str = layout_default,
        out_layout: str = "",
    ) -> Call:
        size = (output_size,) if isinstance(output_size, int) else output_size
        return call(name, data, output_size=size or None, layout=layout, out_layout=out_layout)

    adaptive.__name__ = adaptive.__qualname__ = name.removeprefix("nn.")
    adaptive.__doc__ = f"Pool to `output_size` over {rank} axes; None keeps the size."
    return adaptive


adaptive_avg_pool1d = _adaptive("avg", 1, "NCW")
adaptive_avg_pool2d = _adaptive("avg", 2, "NCHW")
adaptive_avg_pool3d = _adaptive("avg", 3, "NCDHW")
adaptive_max_pool1d = _adaptive("max", 1, "NCW")
adaptive_max_pool2d = _adaptive("max", 2, "NCHW")
adaptive_max_pool3d = _adaptive("max", 3, "NCDHW")


def global_avg_pool1d(data: Expr, layout: str = "NCW", out_layout: str = "") -> Call:
    return adaptive_avg_pool1d(data, 1, layout, out_layout)


def global_avg_pool3d(data: Expr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    return adaptive_avg_pool3d(data, (1, 1, 1), layout, out_layout)


def global_max_pool1d(data: Expr, layout: str = "NCW", out_layout: str = "") -> Call:
    return adaptive_max_pool1d(data, 1, layout, out_layout)


def global_max_pool3d(data: Expr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    return adaptive_max_pool3d(data, (1, 1, 1), layout, out_layout)


# ---- shapes


def batch_flatten(data: Expr) -> Call:
    """All axes behind the first as one."""
    return call("nn.batch_flatten", data)


def pad(
    data: Expr,
    pad_width: Sequence[Sequence[int]],
    pad_value: Any = 0,
    pad_mode: str = "constant",
) -> Call:
    """Pad by (before, after) an axis."""
    if not isinstance(pad_value, Expr):
        pad_value = const(pad_value)
    return call("nn.pad", data, pad_value, pad_width=pad_width, pad_mode=pad_mode)


def mirror_pad(data: Expr, pad_width: Sequence[Sequence[int]], mode: str = "SYMMETRIC") -> Call:
    return call("nn.mirror_pad", data, mode=mode, pad_width=pad_width)


def upsampling(
    data: Expr,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    return call(
        "nn.upsampling",
        data,
        scale_h=scale_h,
        scale_w=scale_w,
        layout=layout,
        method=method,
        align_corners=align_corners,
    )


def depth_to_space(data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    return call("nn.depth_to_space", data, block_size=block_size, layout=layout, mode=mode)


def space_to_depth(data: Expr, block_size: int, layout: str = "NCHW") -> Call:
    return call("nn.space_to_depth", data, block_size=block_size, layout=layout)


def deformable_conv2d(
    data: Expr,
    offset: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    from convoy.relay.op.call import padding as both_sides

    return call(
        "nn.deformable_conv2d",
        data,
        offset,
        weight,
        strides=sizes(strides, 2),
        padding=both_sides(padding, 2),
        dilation=sizes(dilation, 2),
        deformable_groups=deformable_groups,
        groups=groups,
        channels=channels,
        kernel_size=None if kernel_size is None else sizes(kernel_size, 2),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
    )

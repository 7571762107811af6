"""Max and average pooling over windows, and their gradients."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.layouts import over_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import (
    SPATIAL,
    infer_padding,
    infer_window,
    rank_of,
    relax_padding,
)
from convoy.relay.shapes import computed
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type

_NAMES = [f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in SPATIAL]


# ---- pooling


def _make_pool(name: str, rank: int, data: Expr, **attrs: Any) -> Call:
    for field in ("pool_size", "strides", "dilation"):
        attrs[field] = sizes(attrs[field], rank)
    attrs["padding"] = both_sides(attrs["padding"], rank)
    return make_call(name, data, **attrs)


@builder("nn.max_pool1d")
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
    """Take the maximum of windows over one axis; see `max_pool2d`."""
    return _make_pool("nn.max_pool1d", 1, **locals())


@builder("nn.max_pool2d")
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
    """Take the maximum of windows over two axes.

    Args:
        data: (n, c, h, w) in `layout`.
        pool_size, strides, dilation: One value for both axes, or one for each.
        padding: One value, one for each axis, or (top, left, bottom, right).
        ceil_mode: Round the output size up instead of down.
    """
    return _make_pool("nn.max_pool2d", 2, **locals())


@builder("nn.max_pool3d")
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
    """Take the maximum of windows over three axes; see `max_pool2d`."""
    return _make_pool("nn.max_pool3d", 3, **locals())


@builder("nn.avg_pool1d")
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
    """Average windows over one axis; see `max_pool2d`."""
    return _make_pool("nn.avg_pool1d", 1, **locals())


@builder("nn.avg_pool2d")
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
    """Average windows over two axes; see `max_pool2d`.

    Args:
        count_include_pad: Count padding among the elements to divide by.
    """
    return _make_pool("nn.avg_pool2d", 2, **locals())


@builder("nn.avg_pool3d")
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
    """Average windows over three axes; see `max_pool2d`."""
    return _make_pool("nn.avg_pool3d", 3, **locals())


@type_rule(*_NAMES)
def infer_pool(call: Inputs) -> TensorType:
    call.count(1)
    attrs, rank = call.attrs, rank_of(call.name)
    spatial = SPATIAL[rank]
    layout = call.layout(attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    out_layout = attrs["out_layout"]
    if out_layout and out_layout != attrs["layout"]:
        raise call.error(f"out_layout='{out_layout}'", f"'{attrs['layout']}' or none")
    pool, strides = call.positive("pool_size", rank), call.positive("strides", rank)
    dilation = call.positive("dilation", rank)
    shape = list(data.shape)
    for i, (before, after) in enumerate(infer_padding(call, rank)):
        at, extent = layout.index(spatial[i]), (pool[i] - 1) * dilation[i] + 1
        windows = infer_window(call, shape[at], extent, before + after, strides[i])
        if attrs["ceil_mode"]:
            windows = _with_partial(shape[at], extent, before, after, strides[i])
        shape[at] = windows
    return TensorType(shape, data.dtype)


def _with_partial(size: Dim, extent: int, before: int, after: int, stride: int) -> Dim:
    """Count the windows along an axis, a last, partial one included if it begins in the data.

    One that begins in the padding behind the data is left out, as PyTorch, ONNX and Caffe do; TVM
    0.18 counted it, and filled its place with the lowest number.
    """

    def rounded_up(n: Any) -> Any:
        return (n + before + after - extent + stride - 1) // stride + 1

    if isinstance(size, int):
        return min(rounded_up(size), -(-(size + before) // stride))
    return computed(rounded_up, size) if stride + after <= extent else DynamicDim()


@converter(*_NAMES)
@over_plain
def convert_pool(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, rank_of(op.name)
    average = "avg" in op.name
    extra = {"count_include_pad": attrs["count_include_pad"]} if average else {}

    def pool(data: RelaxExpr) -> RelaxExpr:
        return getattr(relax.op.nn, op.name.removeprefix("nn."))(
            data,
            pool_size=ints(attrs["pool_size"]),
            strides=ints(attrs["strides"]),
            padding=relax_padding(attrs["padding"], rank),
            dilation=ints(attrs["dilation"]),
            ceil_mode=attrs["ceil_mode"],
            layout=attrs["layout"],
            **extra,
        )

    return op.averaged(pool) if average else pool(op.args[0])


# ---- gradients


def _make_pool_grad(name: str, out_grad: Expr, data: Expr, **attrs: Any) -> Call:
    for field in ("pool_size", "strides"):
        attrs[field] = sizes(attrs[field], 2)
    attrs["padding"] = both_sides(attrs["padding"], 2)
    return make_call(name, out_grad, data, **attrs)


@builder("nn.max_pool2d_grad")
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
    """Compute the gradient of `max_pool2d` with respect to its data."""
    return _make_pool_grad("nn.max_pool2d_grad", **locals())


@builder("nn.avg_pool2d_grad")
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
    """Compute the gradient of `avg_pool2d` with respect to its data."""
    return _make_pool_grad("nn.avg_pool2d_grad", **locals())


@type_rule("nn.max_pool2d_grad", "nn.avg_pool2d_grad")
def infer_pool_grad(call: Inputs) -> Type:
    """Infer the type of argument 1, the data."""
    call.count(2)
    return call.tensor(1)


@converter("nn.max_pool2d_grad", "nn.avg_pool2d_grad")
def convert_pool_grad(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if attrs["layout"] != "NCHW":
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW")
    return op.te(
        topi.nn.pool_grad,
        op.args[0],
        op.args[1],
        kernel=ints(attrs["pool_size"]),
        stride=ints(attrs["strides"]),
        padding=relax_padding(attrs["padding"], 2),
        pool_type="max" if "max" in op.name else "avg",
        ceil_mode=attrs["ceil_mode"],
        layout="NCHW",
        count_include_pad=bool(attrs.get("count_include_pad", False)),
    )

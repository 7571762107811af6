"""Pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import rank, scalar_like
from convoy.relay.frontend.onnx.convolution import window
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.windows import avg_pool, global_pool, lp_pool, max_pool
from convoy.relay.op import tensor as R
from convoy.relay.op import vision


def _window(node: Node) -> tuple[Sequence[int], list[int], list[int], list[int], bool]:
    kernel = list(node.attrs["kernel_shape"])
    strides, padding, dilation = window(node, kernel)
    auto = node.attr("auto_pad", "NOTSET")
    ceil = bool(node.attr("ceil_mode", 0)) and auto in ("NOTSET", "")
    return kernel, strides, padding, dilation, ceil


@convert("MaxPool")
def convert_max_pool(node: Node) -> Expr:
    """Take the maximum of windows; the indices of the maxima have no counterpart.

    Raises:
        UnsupportedOp: Indices are wanted.
    """
    if node.wants(1):
        raise node.error("the output Indices", "the maxima alone", "Export without return_indices")
    kernel, strides, padding, dilation, ceil = _window(node)
    return max_pool(node[0], kernel, strides, padding, dilation, ceil)


@convert("AveragePool")
def convert_avg_pool(node: Node) -> Expr:
    kernel, strides, padding, dilation, ceil = _window(node)
    include = bool(node.attr("count_include_pad", 0))
    return avg_pool(node[0], kernel, strides, padding, dilation, ceil, include)


@convert("LpPool")
def convert_lp_pool(node: Node) -> Expr:
    kernel, strides, padding, dilation, ceil = _window(node)
    return lp_pool(node[0], node.attr("p", 2), kernel, strides, padding, dilation, ceil)


@convert("GlobalAveragePool")
def global_average(node: Node) -> Expr:
    return global_pool(node[0], "avg")


@convert("GlobalMaxPool")
def global_max(node: Node) -> Expr:
    return global_pool(node[0], "max")


@convert("GlobalLpPool")
def global_lp(node: Node) -> Expr:
    data, p = node[0], node.attr("p", 2)
    power = R.power(R.abs(data), scalar_like(p, data))
    total = R.sum(power, axis=tuple(range(2, rank(data))), keepdims=True)
    return R.power(total, scalar_like(1 / p, data))


@convert("MaxRoiPool")
def max_roi_pool(node: Node) -> Any:
    return vision.roi_pool(
        node[0], node[1], tuple(node.attrs["pooled_shape"]), node.attr("spatial_scale", 1.0)
    )

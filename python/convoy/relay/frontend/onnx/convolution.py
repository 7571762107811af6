"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, const, dims, infer_shape, reshape, squeeze
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.windows import conv, conv_transpose, same_padding
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def window(
    node: Node, kernel: Sequence[int], data: Expr | None = None
) -> tuple[list[int], list[int], list[int]]:
    """Return strides, padding (all before, then all after) and dilation of a window.

    Raises:
        UnsupportedOp: An unknown auto_pad.
    """
    data = node[0] if data is None else data
    axes = len(kernel)
    strides = list(node.attr("strides") or [1] * axes)
    dilation = list(node.attr("dilations") or [1] * axes)
    auto = node.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        padding = list(node.attr("pads") or [0] * 2 * axes)
    elif auto == "VALID":
        padding = [0] * 2 * axes
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        sizes = infer_shape(data)[2:]
        padding = same_padding(sizes, extents, strides, auto == "SAME_UPPER")
    else:
        raise node.error(f"auto_pad '{auto}'", "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return strides, padding, dilation


@convert("Conv")
def convert_conv(node: Node) -> Expr:
    strides, padding, dilation = window(node, node.shape(1)[2:])
    groups = node.attr("group", 1)
    return conv(node[0], node[1], node.get(2), strides, padding, dilation, groups)


@convert("ConvTranspose")
def convert_conv_transpose(node: Node) -> Expr:
    """Apply a transposed convolution; `output_shape` determines the padding if given."""
    kernel, sizes = node.shape(1)[2:], node.shape()[2:]
    axes = len(kernel)
    strides = list(node.attr("strides") or [1] * axes)
    dilation = list(node.attr("dilations") or [1] * axes)
    output_padding = list(node.attr("output_padding") or [0] * axes)
    auto = node.attr("auto_pad", "NOTSET")
    padding = list(node.attr("pads") or [0] * 2 * axes)
    wanted = node.attr("output_shape")
    if wanted is not None:
        wanted = list(wanted)[-axes:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    if wanted is not None:
        before, after = [], []
        for i in range(axes):
            full = strides[i] * (sizes[i] - 1) + output_padding[i]
            total = full + (kernel[i] - 1) * dilation[i] + 1 - wanted[i]
            small, large = total // 2, total - total // 2
            upper = auto == "SAME_UPPER"
            before.append(small if upper else large)
            after.append(large if upper else small)
        padding = before + after
    elif auto == "VALID":
        padding = [0] * 2 * axes
    groups = node.attr("group", 1)
    return conv_transpose(
        node[0], node[1], node.get(2), strides, padding, dilation, groups, output_padding
    )


@convert("ConvInteger")
def conv_integer(node: Node) -> Expr:
    """Convolve integers less their zero points, with sums in int32."""
    strides, padding, dilation = window(node, node.shape(1)[2:])
    data = shifted(node[0], node.get(2), 1)
    weight = shifted(node[1], node.get(3), 0)
    return conv(data, weight, None, strides, padding, dilation, node.attr("group", 1), "int32")


def shifted(data: Expr, zero_point: Expr | None, axis: int) -> Expr:
    """Return integers less their zero point as int32.

    Args:
        zero_point: One for all, or one for each index of `axis`.
    """
    wide = cast(data, "int32")
    if zero_point is None:
        return wide
    point = cast(zero_point, "int32")
    shape = dims(point)
    if shape and shape[0] != 1:
        point = reshape(point, (shape[0], *(1,) * (len(dims(data)) - 1 - axis)))
    elif shape:
        point = squeeze(point, [0])
    return R.subtract(wide, point)


@convert("DeformConv")
def deform_conv(node: Node) -> Expr:
    """Apply a deformable convolution; a mask scales what the kernel reads."""
    if node.get(4) is not None and not _all_ones(node):
        raise node.error("a mask", "no mask", "Export the layer without modulation")
    strides, padding, dilation = window(node, node.shape(1)[2:])
    result = nn.deformable_conv2d(
        node[0],
        node[2],
        node[1],
        strides=tuple(strides),
        padding=tuple(padding),
        dilation=tuple(dilation),
        deformable_groups=node.attr("offset_group", 1),
        groups=node.attr("group", 1),
        channels=node.shape(1)[0],
        kernel_size=node.shape(1)[2:],
    )
    return result if node.get(3) is None else nn.bias_add(result, node[3])


def _all_ones(node: Node) -> bool:
    from convoy.relay.frontend.common import value_of

    value = value_of(node[4])
    return value is not None and bool(np.all(value == 1))


@convert("Col2Im")
def col2im(node: Node) -> Expr:
    """Sum columns of blocks into an image: a transposed convolution with a kernel of ones."""
    image, block = node.ints(1), node.ints(2)
    if len(block) != 2:
        raise node.error(f"blocks of {len(block)} axes", "2")
    strides = list(node.attr("strides") or [1, 1])
    dilation = list(node.attr("dilations") or [1, 1])
    pads = list(node.attr("pads") or [0] * 4)
    n, columns, _ = node.shape()
    size = block[0] * block[1]
    channels = columns // size
    counts = [
        (image[i] + pads[i] + pads[i + 2] - dilation[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    data = reshape(node[0], (n * channels, size, *counts))
    kernel = const(np.eye(size, dtype=node.dtype()).reshape(size, 1, *block))
    covered = [
        (counts[i] - 1) * strides[i] + dilation[i] * (block[i] - 1) + 1 - pads[i] - pads[i + 2]
        for i in range(2)
    ]
    more = [image[i] - covered[i] for i in range(2)]
    whole = conv_transpose(data, kernel, None, strides, pads, dilation, 1, more)
    return reshape(whole, (n, channels, *image))

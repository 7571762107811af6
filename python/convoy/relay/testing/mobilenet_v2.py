"""MobileNet v2 (Sandler et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr, Function
from convoy.relay.builder import var
from convoy.relay.module import IRModule
from convoy.relay.op import nn, tensor
from convoy.relay.testing import layers
from convoy.relay.testing.init import create_workload
from convoy.relay.visit import free_vars

# Expansion, channels out, repeats, stride of the first (table 2 of the paper).
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(
    data: Expr, name: str, channels: int, size: int, stride: int = 1, groups: int = 1
) -> Expr:
    """Add a convolution and a batch normalization."""
    conv = layers.conv2d(
        data,
        name=f"{name}_depthwise" if groups > 1 else name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
        groups=groups,
    )
    return layers.batch_norm_infer(conv, name=f"{name}_bn")


def _relu6(data: Expr) -> Expr:
    return tensor.clip(data, 0.0, 6.0)


def _block(data: Expr, name: str, width: int, expansion: int, channels: int, stride: int) -> Expr:
    """Add an inverted residual: expand, depthwise convolution, project without relu."""
    inner = width * expansion
    body = data
    if expansion > 1:
        body = _relu6(_conv(body, f"{name}_expand", inner, 1))
    body = _relu6(_conv(body, f"{name}_filter", inner, 3, stride, groups=inner))
    body = _conv(body, f"{name}_project", channels, 1)
    if stride == 1 and width == channels:
        body = tensor.add(data, body)
    return body


def get_net(
    batch_size: int, num_classes: int, image_shape: Sequence[int], dtype: str = "float32"
) -> Function:
    """Make MobileNet v2 of width 1."""
    data: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    width = 32
    body = _relu6(_conv(data, "conv1", width, 3, 2))
    number = 0
    for expansion, channels, repeats, first_stride in _STAGES:
        for repeat in range(repeats):
            number += 1
            stride = first_stride if repeat == 0 else 1
            body = _block(body, f"block{number}", width, expansion, channels, stride)
            width = channels
    body = _relu6(_conv(body, "conv_last", 1280, 1))
    body = nn.dropout(nn.batch_flatten(nn.global_avg_pool2d(body)))
    net = nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))

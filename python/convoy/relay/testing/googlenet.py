"""GoogLeNet, or Inception v1 (Szegedy et al. 2014), without its auxiliary classifiers."""

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

# Channels of each inception module (table 1 of the paper): 1x1; 3x3 reduced, 3x3; 5x5 reduced,
# 5x5; projection behind the pool. None is a pool between modules.
_MODULES = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def _conv_relu(data: Expr, name: str, channels: int, size: int, stride: int = 1) -> Expr:
    conv = layers.conv2d(
        data,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
    )
    return nn.relu(nn.bias_add(conv, var(f"{name}_bias")))


def _pool(data: Expr, stride: int) -> Expr:
    return nn.max_pool2d(data, (3, 3), (stride, stride), padding=(1, 1))


def _inception(data: Expr, name: str, channels: Sequence[int]) -> Expr:
    plain, reduced3, three, reduced5, five, projected = channels
    left = _conv_relu(data, f"{name}_1x1", plain, 1)
    middle = _conv_relu(data, f"{name}_3x3_reduce", reduced3, 1)
    middle = _conv_relu(middle, f"{name}_3x3", three, 3)
    right = _conv_relu(data, f"{name}_5x5_reduce", reduced5, 1)
    right = _conv_relu(right, f"{name}_5x5", five, 5)
    pooled = _conv_relu(_pool(data, 1), f"{name}_pool_proj", projected, 1)
    return tensor.concatenate((left, middle, right, pooled), axis=1)


def get_net(
    batch_size: int, num_classes: int, image_shape: Sequence[int], dtype: str = "float32"
) -> Function:
    """Make GoogLeNet for images of 3 x 224 x 224.

    Local response normalization is left out, as in later implementations.
    """
    data: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _pool(_conv_relu(data, "conv1", 64, 7, 2), 2)
    body = _conv_relu(_conv_relu(body, "conv2_reduce", 64, 1), "conv2", 192, 3)
    body = _pool(body, 2)
    for number, channels in enumerate(_MODULES):
        if channels is None:
            body = _pool(body, 2)
        else:
            body = _inception(body, f"inception{number}", channels)
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

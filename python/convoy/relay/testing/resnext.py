"""ResNeXt with grouped bottlenecks (Xie et al. 2016)."""

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

# Blocks of each stage, by number of layers.
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def _conv(
    data: Expr, name: str, channels: int, size: int, stride: int = 1, groups: int = 1
) -> Expr:
    """Add a convolution and a batch normalization."""
    conv = layers.conv2d(
        data,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
        groups=groups,
    )
    return layers.batch_norm_infer(conv, name=f"{name}_bn")


def _block(data: Expr, name: str, inner: int, groups: int, channels: int, stride: int) -> Expr:
    body: Expr = nn.relu(_conv(data, f"{name}_conv1", inner, 1))
    body = nn.relu(_conv(body, f"{name}_conv2", inner, 3, stride, groups))
    body = _conv(body, f"{name}_conv3", channels, 1)
    shortcut = data
    if name.endswith("block1"):
        shortcut = _conv(data, f"{name}_shortcut", channels, 1, stride)
    return nn.relu(tensor.add(body, shortcut))


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    groups: int = 32,
    group_width: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """ResNeXt-50 or -101.

    Args:
        groups: Of the 3x3 convolutions (cardinality).
        group_width: Channels of each group in the first stage.

    Raises:
        ValueError: No such ResNeXt.
    """
    if num_layers not in _BLOCKS:
        raise ValueError(f"no ResNeXt of {num_layers} layers; known are {sorted(_BLOCKS)}")
    data: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body: Expr = nn.relu(_conv(data, "conv1", 64, 7, 2))
    body = nn.max_pool2d(body, (3, 3), strides=(2, 2), padding=(1, 1))
    for stage, count in enumerate(_BLOCKS[num_layers]):
        inner, channels = (groups * group_width) << stage, 256 << stage
        for block in range(1, count + 1):
            stride = 2 if stage and block == 1 else 1
            body = _block(body, f"stage{stage + 1}_block{block}", inner, groups, channels, stride)
    body = nn.batch_flatten(nn.global_avg_pool2d(body))
    net = nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 50,
    groups: int = 32,
    group_width: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    net = get_net(batch_size, num_classes, num_layers, groups, group_width, image_shape, dtype)
    return create_workload(net)

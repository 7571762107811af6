"""A deep Q-network for frames of games: three convolutions and two dense layers (Mnih et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr, Function
from convoy.relay.builder import var
from convoy.relay.module import IRModule
from convoy.relay.op import nn
from convoy.relay.testing import layers
from convoy.relay.testing.init import create_workload
from convoy.relay.visit import free_vars


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Sequence[int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """Make the network; images are of shape (4, 84, 84), or (84, 84, 4) in layout NHWC."""
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    bias_axis = layout.index("C")
    kernel_layout = "OIHW" if layout == "NCHW" else "HWIO"
    for i, (channels, kernel, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        body = layers.conv2d(
            body, name=f"conv{i}", channels=channels, kernel_size=(kernel, kernel),
            strides=(stride, stride), padding=(0, 0), data_layout=layout,
            kernel_layout=kernel_layout,
        )  # fmt: skip
        bias = var(f"conv{i}_bias", shape=(channels,), dtype=dtype)
        body = nn.relu(nn.bias_add(body, bias, bias_axis))
    body = nn.batch_flatten(body)
    body = nn.relu(layers.dense_add_bias(body, units=512, name="dense1"))
    body = layers.dense_add_bias(body, units=num_actions, name="dense2")
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Sequence[int] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout))

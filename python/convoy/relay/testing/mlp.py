"""Three dense layers for 28x28 digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Function
from convoy.relay.builder import var
from convoy.relay.module import IRModule
from convoy.relay.op import nn
from convoy.relay.testing import layers
from convoy.relay.testing.init import create_workload
from convoy.relay.visit import free_vars


def get_net(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> Function:
    """Make a perceptron of 128, 64 and `num_classes` units."""
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = nn.relu(layers.dense_add_bias(nn.batch_flatten(data), units=128, name="fc1"))
    body = nn.relu(layers.dense_add_bias(body, units=64, name="fc2"))
    net = nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc3"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))

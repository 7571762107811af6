"""VGG (Simonyan and Zisserman 2014) of 11, 13, 16 or 19 layers."""

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

_CONVS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
_FILTERS = (64, 128, 256, 512, 512)


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """VGG of a number of layers.

    Raises:
        ValueError: No such VGG.
    """
    if num_layers not in _CONVS:
        raise ValueError(f"no VGG of {num_layers} layers; known are {sorted(_CONVS)}")
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for stage, (count, channels) in enumerate(zip(_CONVS[num_layers], _FILTERS, strict=True), 1):
        for i in range(1, count + 1):
            name = f"conv{stage}_{i}"
            body = layers.conv2d(body, name=name, channels=channels, kernel_size=3, padding=1)
            body = nn.bias_add(body, var(f"{name}_bias"))
            if batch_norm:
                body = layers.batch_norm_infer(body, name=f"bn{stage}_{i}")
            body = nn.relu(body)
        body = nn.max_pool2d(body, 2, 2)
    body = nn.batch_flatten(body)
    for name in ("fc6", "fc7"):
        body = nn.relu(layers.dense_add_bias(body, units=4096, name=name))
        body = nn.dropout(body, rate=0.5)
    net = nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc8"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(
        get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm)
    )

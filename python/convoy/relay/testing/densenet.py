"""DenseNet of 121, 161, 169 or 201 layers (Huang et al. 2017), as TVM's tests build it.

A block concatenates the results of its layers, each of which reads the one before.
"""

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

# Layers: first channels, growth, and layers of each block.
_SPEC = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
_BOTTLENECK = 4


def _norm_relu(data: Expr, name: str) -> Expr:
    return nn.relu(layers.batch_norm_infer(data, name=name))


def _block(data: Expr, count: int, growth: int, block: int) -> Expr:
    parts = []
    for i in range(count):
        name = f"{block}_{i}"
        data = _norm_relu(data, f"batch_1_{name}")
        data = layers.conv2d(
            data, name=f"conv2d_1_{name}", channels=_BOTTLENECK * growth, kernel_size=(1, 1)
        )
        data = _norm_relu(data, f"batch_2_{name}")
        data = layers.conv2d(
            data, name=f"conv2d_2_{name}", channels=growth, kernel_size=(3, 3), padding=(1, 1)
        )
        parts.append(data)
    return tensor.concatenate(parts, axis=1)


def _transition(data: Expr, channels: int, block: int) -> Expr:
    data = _norm_relu(data, f"batch_t_{block}")
    data = layers.conv2d(data, name=f"conv_t_{block}", channels=channels, kernel_size=(1, 1))
    return nn.avg_pool2d(data, (2, 2), (2, 2))


def get_net(
    densenet_size: int,
    classes: int,
    data_shape: Sequence[int],
    dtype: str,
) -> Function:
    """Make a DenseNet.

    Raises:
        ValueError: There is no DenseNet of this size.
    """
    if densenet_size not in _SPEC:
        raise ValueError(f"no DenseNet of {densenet_size} layers; known are {sorted(_SPEC)}")
    features, growth, blocks = _SPEC[densenet_size]
    data: Expr = var("data", shape=data_shape, dtype=dtype)
    stem = layers.conv2d(
        data, name="conv1", channels=features, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3)
    )
    body: Expr = nn.max_pool2d(_norm_relu(stem, "batch1"), (3, 3), (2, 2), padding=(1, 1))
    for block, count in enumerate(blocks):
        body = _block(body, count, growth, block)
        features += count * growth
        if block != len(blocks) - 1:
            features //= 2
            body = _transition(body, features, block)
    body = nn.avg_pool2d(_norm_relu(body, "batch2"), (7, 7))
    net = layers.dense_add_bias(nn.batch_flatten(body), units=classes, name="dense")
    return Function(free_vars(net), net)


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(densenet_size, classes, (batch_size, *image_shape), dtype))

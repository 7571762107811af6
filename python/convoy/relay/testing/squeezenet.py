"""SqueezeNet 1.0 and 1.1 (Iandola et al. 2016)."""

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

# Squeezed channels of each fire module; each of its two halves has four times as many.
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)
# Version: channels, kernel of the stem, and the fire modules that a pool follows.
_VERSIONS = {"1.0": (96, 7, (3, 7)), "1.1": (64, 3, (2, 4))}


def _conv_relu(data: Expr, name: str, channels: int, size: int, **attrs: Any) -> Expr:
    conv = layers.conv2d(data, name=name, channels=channels, kernel_size=(size, size), **attrs)
    return nn.relu(nn.bias_add(conv, var(f"{name}_bias")))


def _fire(data: Expr, name: str, squeezed: int) -> Expr:
    data = _conv_relu(data, f"{name}_input_conv", squeezed, 1)
    left = _conv_relu(data, f"{name}_left_conv", 4 * squeezed, 1)
    right = _conv_relu(data, f"{name}_right_conv", 4 * squeezed, 3, padding=(1, 1))
    return tensor.concatenate((left, right), axis=1)


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    version: str,
    dtype: str,
) -> Function:
    """SqueezeNet.

    Raises:
        ValueError: A version other than "1.0" and "1.1".
    """
    if version not in _VERSIONS:
        raise ValueError(f"no SqueezeNet {version}; known are {sorted(_VERSIONS)}")
    channels, kernel, pools = _VERSIONS[version]
    data: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    pad = (kernel // 2, kernel // 2)
    body = _conv_relu(data, "conv1", channels, kernel, strides=(2, 2), padding=pad)
    body = nn.max_pool2d(body, (3, 3), (2, 2))
    for number, squeezed in enumerate(_SQUEEZED, 1):
        body = _fire(body, f"fire{number}", squeezed)
        if number in pools:
            body = nn.max_pool2d(body, (3, 3), (2, 2))
    body = _conv_relu(nn.dropout(body), "conv_final", num_classes, 1)
    net = nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(body)))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))

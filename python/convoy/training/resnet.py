"""Residual networks to train: ResNet-50 as torchvision has it, and a small one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .network import LossModule, Network


def resnet50(batch: int, image: int = 224, classes: int = 1000, seed: int = 0) -> LossModule:
    """ResNet-50 (v1.5: the stride is in the 3x3 convolutions), as torchvision has it."""
    net = Network(batch, image, image, 3, seed)
    return net.finish(bottlenecks(net, classes))


def bottlenecks(net: Any, classes: int) -> Any:
    """Logits of :func:`resnet50` by the layers of ``net``, a Network or what looks like one."""
    x = net.relu(net.batch_norm(net.conv(net.x, 64, 7, 2, name="stem"), name="stem_norm"))
    x = net.max_pool(x, 3, 2, 1)
    for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(net, x, width, stride, not block, f"stage{stage + 1}_{block}")
    return net.dense(net.mean(x), classes, name="classifier")


def _bottleneck(net: Any, x: Any, width: int, stride: int, project: bool, name: str) -> Any:
    """1x1, 3x3, 1x1 to four times the width; the shortcut is projected where sizes change."""

    def conv_norm(x: Any, channels: int, kernel: int, stride: int, part: str) -> Any:
        y = net.conv(x, channels, kernel, stride, name=f"{name}_{part}")
        return net.batch_norm(y, name=f"{name}_{part}_norm")

    y = net.relu(conv_norm(x, width, 1, 1, "a"))
    y = net.relu(conv_norm(y, width, 3, stride, "b"))
    y = conv_norm(y, 4 * width, 1, 1, "c")
    shortcut = conv_norm(x, 4 * width, 1, stride, "shortcut") if project else x
    return net.relu(net.add(y, shortcut))


def small_resnet(
    batch: int, image: int = 8, channels: int = 1, classes: int = 10,
    widths: Sequence[int] = (16, 32), norm: bool = True, seed: int = 0,
) -> LossModule:  # fmt: skip
    """Basic blocks, one a width, the first at full size and each later one at half of the last.

    Without ``norm`` convolutions have biases, so that a step trains weights and biases alone.
    """
    net = Network(batch, image, image, channels, seed)
    return net.finish(basic_blocks(net, widths, classes, norm))


def basic_blocks(net: Any, widths: Sequence[int], classes: int, norm: bool) -> Any:
    """Logits of :func:`small_resnet` by the layers of ``net``, a Network or what looks like one."""

    def layer(x: Any, width: int, kernel: int, stride: int, name: str) -> Any:
        y = net.conv(x, width, kernel, stride, bias=not norm, name=name)
        return net.batch_norm(y, name=f"{name}_norm") if norm else y

    channels = widths[0]
    x = net.relu(layer(net.x, channels, 3, 1, "stem"))
    for i, width in enumerate(widths):
        stride = 2 if i else 1
        y = net.relu(layer(x, width, 3, stride, f"block{i}_a"))
        y = layer(y, width, 3, 1, f"block{i}_b")
        shortcut = x
        if width != channels or stride > 1:
            shortcut = layer(x, width, 1, stride, f"block{i}_shortcut")
        x, channels = net.relu(net.add(y, shortcut)), width
    return net.dense(net.mean(x), classes, name="classifier")

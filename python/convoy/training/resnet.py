"""Residual networks to train: ResNet-50 as torchvision has it, and a small one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from .network import LossModule, Network

T = TypeVar("T")


class Layers(Protocol[T]):
    """Layers of a network over tensors of one type, as :class:`Network` has them over Relax's."""

    x: T

    def conv(
        self, x: T, channels: int, kernel: int, stride: int = 1, *, bias: bool = False,
        name: str = "",
    ) -> T: ...  # fmt: skip
    def batch_norm(self, x: T, *, name: str = "") -> T: ...
    def relu(self, x: T) -> T: ...
    def add(self, x: T, y: T) -> T: ...
    def max_pool(self, x: T, size: int, stride: int, padding: int = 0) -> T: ...
    def mean(self, x: T) -> T: ...
    def dense(self, x: T, units: int, name: str = "") -> T: ...


def resnet50(batch: int, image: int = 224, classes: int = 1000, seed: int = 0) -> LossModule:
    """ResNet-50 (v1.5: the stride is in the 3x3 convolutions), as torchvision has it."""
    net = Network(batch, image, image, 3, seed)
    return net.finish(bottlenecks(net, classes))


def bottlenecks(net: Layers[T], classes: int) -> T:
    """Return the logits of :func:`resnet50`, made of the layers of ``net``."""
    x = net.relu(net.batch_norm(net.conv(net.x, 64, 7, 2, name="stem"), name="stem_norm"))
    x = net.max_pool(x, 3, 2, 1)
    for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(net, x, width, stride, not block, f"stage{stage + 1}_{block}")
    return net.dense(net.mean(x), classes, name="classifier")


def _bottleneck(net: Layers[T], x: T, width: int, stride: int, project: bool, name: str) -> T:
    """1x1, 3x3, 1x1 to four times the width; the shortcut is projected where sizes change."""

    def conv_norm(x: T, channels: int, kernel: int, stride: int, part: str) -> T:
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


def basic_blocks(net: Layers[T], widths: Sequence[int], classes: int, norm: bool) -> T:
    """Return the logits of :func:`small_resnet`, made of the layers of ``net``."""

    def layer(x: T, width: int, kernel: int, stride: int, name: str) -> T:
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

"""Inception v3 (Szegedy et al. 2015)."""

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

Size = int | tuple[int, int]


class _Builder:
    """Build blocks whose convolutions are numbered in order."""

    def __init__(self) -> None:
        self.count = 0

    def conv(self, data: Expr, channels: int, kernel: Size, stride: int = 1, pad: Size = 0) -> Expr:
        """Add a convolution, a batch normalization and a relu."""
        name = f"conv_{self.count}"
        self.count += 1
        conv = layers.conv2d(
            data,
            name=name,
            channels=channels,
            kernel_size=kernel,
            strides=stride,
            padding=pad,
        )
        return nn.relu(layers.batch_norm_infer(conv, epsilon=2e-5, name=f"{name}_bn"))

    def chain(self, data: Expr, *convs: tuple[Any, ...]) -> Expr:
        for spec in convs:
            data = self.conv(data, *spec)
        return data

    def pooled(self, data: Expr, kind: str, channels: int) -> Expr:
        """Add a pool that keeps the size and a 1x1 convolution."""
        return self.conv(_pool(data, kind, 3, 1, 1), channels, 1)

    def block_a(self, data: Expr, projected: int) -> Expr:
        return _join(
            self.conv(data, 64, 1),
            self.chain(data, (48, 1), (64, 5, 1, 2)),
            self.chain(data, (64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
            self.pooled(data, "avg", projected),
        )

    def block_b(self, data: Expr) -> Expr:
        return _join(
            self.conv(data, 384, 3, 2),
            self.chain(data, (64, 1), (96, 3, 1, 1), (96, 3, 2)),
            _pool(data, "max", 3, 2),
        )

    def block_c(self, data: Expr, inner: int) -> Expr:
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return _join(
            self.conv(data, 192, 1),
            self.chain(data, (inner, 1), (inner, *row), (192, *column)),
            self.chain(
                data, (inner, 1), (inner, *column), (inner, *row), (inner, *column), (192, *row)
            ),
            self.pooled(data, "avg", 192),
        )

    def block_d(self, data: Expr) -> Expr:
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return _join(
            self.chain(data, (192, 1), (320, 3, 2)),
            self.chain(data, (192, 1), (192, *row), (192, *column), (192, 3, 2)),
            _pool(data, "max", 3, 2),
        )

    def block_e(self, data: Expr, kind: str) -> Expr:
        row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
        short = self.conv(data, 384, 1)
        deep = self.chain(data, (448, 1), (384, 3, 1, 1))
        return _join(
            self.conv(data, 320, 1),
            self.conv(short, 384, *row),
            self.conv(short, 384, *column),
            self.conv(deep, 384, *row),
            self.conv(deep, 384, *column),
            self.pooled(data, kind, 192),
        )


def _pool(data: Expr, kind: str, size: int, stride: int, pad: int = 0) -> Expr:
    if kind == "max":
        return nn.max_pool2d(data, size, stride, padding=pad)
    return nn.avg_pool2d(data, size, stride, padding=pad, count_include_pad=True)


def _join(*parts: Expr) -> Expr:
    return tensor.concatenate(parts, axis=1)


def get_net(batch_size: int, num_classes: int, image_shape: Sequence[int], dtype: str) -> Function:
    """Make Inception v3 for images of 3 x 299 x 299."""
    build = _Builder()
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = build.chain(body, (32, 3, 2), (32, 3), (64, 3, 1, 1))
    body = build.chain(_pool(body, "max", 3, 2), (80, 1), (192, 3))
    body = _pool(body, "max", 3, 2)
    for projected in (32, 64, 64):
        body = build.block_a(body, projected)
    body = build.block_b(body)
    for inner in (128, 160, 160, 192):
        body = build.block_c(body, inner)
    body = build.block_d(body)
    for kind in ("avg", "max"):
        body = build.block_e(body, kind)
    body = nn.batch_flatten(_pool(body, "avg", 8, 1))
    body = nn.dense(body, var("fc1_weight"), units=num_classes)
    net = nn.softmax(nn.bias_add(body, var("fc1_bias"), axis=-1))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 299, 299),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))

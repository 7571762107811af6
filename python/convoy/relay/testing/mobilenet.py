"""MobileNet v1 (Howard et al. 2017)."""

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

# Per separable block: channels out, and stride.
_BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


def mobile_net(
    num_classes: int = 1000,
    data_shape: Sequence[int] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """Make MobileNet v1.

    Args:
        alpha: A factor on all channels.
        is_shallow: Leave out the five blocks of 512 channels.
    """
    axis = layout.index("C")
    kernel = layers.conv_kernel_layout(layout)

    def norm_relu(data: Expr, name: str) -> Expr:
        return nn.relu(layers.batch_norm_infer(data, axis=axis, name=name))

    def conv(data: Expr, name: str, channels: int, size: int, stride: int, **attrs: Any) -> Expr:
        return layers.conv2d(
            data,
            name=name,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            data_layout=layout,
            **{"kernel_layout": kernel, **attrs},
        )

    channels = int(32 * alpha)
    body: Expr = var("data", shape=data_shape, dtype=dtype)
    body = norm_relu(conv(body, "conv_block_1_conv", channels, 3, 2), "conv_block_1_bn")
    blocks = [b for i, b in enumerate(_BLOCKS) if not (is_shallow and 6 <= i <= 10)]
    depthwise = layers.conv_kernel_layout(layout, is_depthwise=True)
    for number, (out, stride) in enumerate(blocks, 1):
        name = f"separable_conv_block_{number}"
        body = conv(body, name, channels, 3, stride, groups=channels, kernel_layout=depthwise)
        body = norm_relu(body, f"{name}_bn1")
        channels = int(out * alpha)
        body = norm_relu(conv(body, f"{name}_conv2", channels, 1, 1), f"{name}_bn2")
    body = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    body = nn.dense(body, var("fc_weight"), units=num_classes)
    net = nn.softmax(nn.bias_add(body, var("fc_bias")))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `mobile_net`."""
    shape = (batch_size, *image_shape)
    return create_workload(mobile_net(num_classes, shape, dtype, layout=layout))

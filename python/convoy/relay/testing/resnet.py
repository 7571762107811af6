"""ResNet with pre-activation (He et al. 2016), for ImageNet and CIFAR sizes."""

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

_EPSILON = 2e-5
# Units a stage, by number of layers.
_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}


class _Builder:
    """Build the layers of one network, which share layouts."""

    def __init__(self, layout: str) -> None:
        self.layout, self.kernel = layout, layers.conv_kernel_layout(layout)
        self.axis = layout.index("C")

    def conv(self, data: Expr, name: str, channels: int, size: int, stride: int = 1) -> Expr:
        return layers.conv2d(
            data,
            name=name,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            data_layout=self.layout,
            kernel_layout=self.kernel,
        )

    def norm(self, data: Expr, name: str, **attrs: Any) -> Expr:
        return layers.batch_norm_infer(data, epsilon=_EPSILON, axis=self.axis, name=name, **attrs)

    def norm_relu(self, data: Expr, name: str) -> Expr:
        return nn.relu(self.norm(data, name))

    def unit(
        self, data: Expr, name: str, channels: int, stride: int, project: bool, bottleneck: bool
    ) -> Expr:
        """Add a residual unit; its shortcut is a 1x1 convolution where sizes change."""
        first = self.norm_relu(data, f"{name}_bn1")
        if bottleneck:
            inner = channels // 4
            body = self.conv(first, f"{name}_conv1", inner, 1, stride)
            body = self.conv(self.norm_relu(body, f"{name}_bn2"), f"{name}_conv2", inner, 3)
            body = self.conv(self.norm_relu(body, f"{name}_bn3"), f"{name}_conv3", channels, 1)
        else:
            body = self.conv(first, f"{name}_conv1", channels, 3, stride)
            body = self.conv(self.norm_relu(body, f"{name}_bn2"), f"{name}_conv2", channels, 3)
        shortcut = self.conv(first, f"{name}_sc", channels, 1, stride) if project else data
        return tensor.add(body, shortcut)


def resnet(
    units: Sequence[int],
    filters: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottleneck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Make a ResNet of given units.

    Args:
        units: The residual units of each stage.
        filters: The channels of the stem and of each stage.
        data_shape: The shape of the input, in `layout`.
    """
    build = _Builder(layout)
    data = var("data", shape=data_shape, dtype=dtype)
    body = build.norm(data, "bn_data", scale=False)
    if data_shape[layout.index("H")] <= 32:
        body = build.conv(body, "conv0", filters[0], 3)
    else:
        body = build.norm_relu(build.conv(body, "conv0", filters[0], 7, 2), "bn0")
        body = nn.max_pool2d(body, (3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for stage, count in enumerate(units, 1):
        for unit in range(1, count + 1):
            stride = 2 if stage > 1 and unit == 1 else 1
            name = f"stage{stage}_unit{unit}"
            body = build.unit(body, name, filters[stage], stride, unit == 1, bottleneck)
    body = nn.global_avg_pool2d(build.norm_relu(body, "bn1"), layout=layout)
    body = layers.dense_add_bias(nn.batch_flatten(body), units=num_classes, name="fc1")
    net = nn.softmax(body)
    return Function(free_vars(net), net)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> Function:
    """Make a ResNet of a number of layers.

    Raises:
        ValueError: There is no such ResNet.
    """
    height = image_shape[layout[1:].index("H")]
    if height <= 28 or (height <= 32 and num_layers not in _UNITS):
        units, filters, bottleneck = _cifar(num_layers)
    elif num_layers in _UNITS:
        bottleneck = num_layers >= 50
        units = _UNITS[num_layers]
        filters = (64, 256, 512, 1024, 2048) if bottleneck else (64, 64, 128, 256, 512)
    else:
        raise ValueError(f"no ResNet of {num_layers} layers; known are {sorted(_UNITS)}")
    shape = (batch_size, *image_shape)
    return resnet(units, filters, num_classes, shape, bottleneck, layout, dtype)


def _cifar(num_layers: int) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Return units, filters and bottleneck of three stages, of 9 or 6 layers for each unit."""
    if (num_layers - 2) % 9 == 0 and num_layers >= 164:
        return ((num_layers - 2) // 9,) * 3, (16, 64, 128, 256), True
    if (num_layers - 2) % 6 == 0 and num_layers < 164:
        return ((num_layers - 2) // 6,) * 3, (16, 16, 32, 64), False
    raise ValueError(f"no ResNet of {num_layers} layers for small images; 20, 32, 44, ... are")


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    net = get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs)
    return create_workload(net)

"""The table of networks, and their random weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Small:
    """``make`` returns the module; ``inputs`` are its inputs' shapes without the batch size."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Shape, ...]


NETWORKS: dict[str, Small] = {}


def network(*inputs: Shape) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    def register(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        NETWORKS[build.__name__] = Small(build.__name__, build, inputs)
        return build

    return register


def make(name: str, seed: int = 0) -> nn.Module:
    """A network in float32 and evaluation mode, norms with statistics that are not the neutral
    ones. Raises KeyError for an unknown name."""
    torch.manual_seed(seed)
    module = NETWORKS[name].build().eval()
    for layer in module.modules():
        if isinstance(layer, (nn.modules.conv._ConvNd, nn.Linear)):
            # PyTorch's own start lets signals shrink until biases hide every error before them.
            fan_in = layer.weight[0].numel() or 1
            if isinstance(layer, nn.modules.conv._ConvTransposeNd):
                taps = layer.weight[0, 0].numel() / math.prod(layer.stride)
                fan_in = layer.weight.shape[0] * taps
            layer.weight.data.normal_(0, (1.5 / fan_in) ** 0.5)
            if layer.bias is not None:
                layer.bias.data.normal_(0, 0.1)
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.5, 0.5)
            layer.running_var.uniform_(0.5, 2)
        if isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d, nn.LayerNorm)):
            layer.weight.data.uniform_(0.5, 1.5)
            layer.bias.data.uniform_(-0.5, 0.5)
    return module.requires_grad_(False)


class Apply(nn.Module):
    """Parts by name, and a function of them and the inputs: ``forward(net, *inputs)``."""

    def __init__(self, forward: Callable[..., object], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self._forward = forward

    def forward(self, *inputs: torch.Tensor) -> object:
        return self._forward(self, *inputs)


def conv(c: int, k: int, r: int | tuple[int, int] = 3, stride: int = 1,
         act: nn.Module | None = None, **options: object) -> nn.Sequential:  # fmt: skip
    """Convolution, batch norm and activation (ReLU unless another is given)."""
    rows, cols = (r, r) if isinstance(r, int) else r
    options.setdefault("padding", (rows // 2, cols // 2))
    layer = nn.Conv2d(c, k, r, stride, bias=False, **options)  # type: ignore[arg-type]
    return nn.Sequential(layer, nn.BatchNorm2d(k), nn.ReLU() if act is None else act)


def linear(c: int, k: int, r: int = 1, stride: int = 1, **options: object) -> nn.Sequential:
    """Convolution and batch norm."""
    return conv(c, k, r, stride, nn.Identity(), **options)


def head(c: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))

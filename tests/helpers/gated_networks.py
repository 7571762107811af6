"""Small networks with squeeze-and-excitation blocks, as EfficientNets and SE-ResNets have them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .inverted_residuals import conv


class Gates(nn.Module):
    """A block of 1x1 convolutions, or of linear layers."""

    def __init__(
        self, c: int, squeezed: int, activation: Callable[[], nn.Module],
        gate: Callable[[], nn.Module], linear: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.linear = linear
        layer = nn.Linear if linear else lambda c, k: nn.Conv2d(c, k, 1)
        self.products = nn.Sequential(layer(c, squeezed), activation(), layer(squeezed, c), gate())

    def forward(self, x: Tensor) -> Tensor:
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        gates = self.products(mean.flatten(1) if self.linear else mean)
        return x * (gates[:, :, None, None] if self.linear else gates)


class Gated(nn.Module):
    """Convolutions with a block behind them, and a shortcut with ReLU where one is added."""

    def __init__(self, c: int, wide: int, gates: Gates, residual: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(c, wide, nn.ReLU, 3), gates)
        self.tail = nn.Identity() if residual else conv(wide, c, nn.Identity)
        self.shortcut = conv(c, wide, nn.Identity) if residual else None
        self.narrow = conv(wide, c, nn.ReLU) if residual else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.tail(self.body(x))
        if self.shortcut is not None:
            y = torch.relu(y + self.shortcut(x))
        return self.narrow(y)


def network(wide: int = 96, squeezed: int = 8) -> nn.Module:
    """A stem and a block of each kind, the mean of whose result is read by a linear layer."""
    torch.manual_seed(5)
    blocks = (
        Gated(32, wide, Gates(wide, squeezed, nn.SiLU, nn.Sigmoid), False),
        Gated(32, wide, Gates(wide, squeezed, nn.ReLU, nn.Hardsigmoid), False),
        Gated(32, wide, Gates(wide, squeezed, nn.ReLU, nn.Sigmoid, linear=True), True),
    )
    stem = conv(3, 32, nn.ReLU, 3, 2)
    return nn.Sequential(
        stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 16)
    ).eval()

"""Small networks of bottlenecks, as ResNets have them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .inverted_residuals import conv


class Bottleneck(nn.Module):
    """Its shortcut is a convolution where the number of channels changes."""

    def __init__(self, c: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(c, narrow, nn.ReLU), conv(narrow, narrow, nn.ReLU, 3),
            conv(narrow, wide, nn.Identity),
        )  # fmt: skip
        self.shortcut = conv(c, wide, nn.Identity) if c != wide else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def network(narrow: int = 64, wide: int = 256, blocks: int = 3) -> nn.Module:
    """A stem and a stage of bottlenecks, the mean of whose result is read by a linear layer."""
    torch.manual_seed(5)
    stem = conv(3, 32, nn.ReLU, 3, 2)
    widths = [32, *[wide] * blocks]
    stage = (Bottleneck(c, narrow, wide) for c in widths[:-1])
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 16)
    return nn.Sequential(stem, *stage, *head).eval()

"""Small networks of inverted residuals, as MobileNets and EfficientNets have them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Activation, filter, and whether there is a squeeze-excitation.
BLOCKS: dict[str, tuple[type[nn.Module], int, bool]] = {
    "mobilenet_v2": (nn.ReLU6, 3, False),
    "efficientnet": (nn.SiLU, 5, True),
    "mobilenet_v3": (nn.Hardswish, 5, True),
}


def conv(
    c: int, k: int, act: type[nn.Module], r: int = 1, stride: int = 1, groups: int = 1
) -> nn.Module:
    """A convolution with statistics that are not those of a new network."""
    norm = nn.BatchNorm2d(k)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    nn.init.normal_(norm.running_mean, 0.0, 0.1)
    nn.init.normal_(norm.bias, 0.0, 0.2)
    filters = nn.Conv2d(c, k, r, stride, r // 2, groups=groups, bias=False)
    return nn.Sequential(filters, norm, act())


class Gate(nn.Module):
    """A squeeze-excitation."""

    def __init__(self, c: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 8, 1), act(), nn.Conv2d(8, c, 1), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Inverted(nn.Module):
    """Adds its input where sizes allow it."""

    def __init__(self, kind: str, c: int, wide: int, k: int, stride: int) -> None:
        super().__init__()
        act, taps, gated = BLOCKS[kind]
        self.body = nn.Sequential(
            conv(c, wide, act), conv(wide, wide, act, taps, stride, wide),
            *([Gate(wide, act)] if gated else []), conv(wide, k, nn.Identity),
        )  # fmt: skip
        self.adds = stride == 1 and c == k

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def network(kind: str) -> nn.Module:
    """Two inverted residuals behind a stem, the second of which adds its input."""
    torch.manual_seed(3)
    stem = conv(3, 16, BLOCKS[kind][0], 3, 2)
    blocks = Inverted(kind, 16, 96, 24, 2), Inverted(kind, 24, 144, 24, 1)
    return nn.Sequential(stem, *blocks).eval()

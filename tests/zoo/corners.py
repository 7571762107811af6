"""Sizes, strides and wirings at the limits of the libraries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .registry import Apply, conv, head, linear, network


@network((5, 23, 19))
def odd_channels() -> nn.Module:
    """5, 3 and 17 channels; grouped by them and depthwise with a multiplier."""
    return nn.Sequential(
        nn.Conv2d(5, 15, 3, groups=5), nn.ReLU(), nn.Conv2d(15, 17, 1), nn.ReLU(),
        nn.Conv2d(17, 17, 3, padding=1, groups=17), nn.ReLU(), nn.Conv2d(17, 34, 3, groups=17),
        nn.ReLU(), nn.Conv2d(34, 3, (3, 5)), nn.Sigmoid(),
    )  # fmt: skip


@network((3, 50, 41))
def strides_and_borders() -> nn.Module:
    """Stride 3, a stride of its own for each axis, padding on one side only, a crop behind."""
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 2)), nn.Conv2d(3, 16, 5, 3), nn.ReLU(), nn.ZeroPad2d((2, 0, 1, 3)),
        nn.Conv2d(16, 24, 3, (2, 1), (0, 1)), nn.ReLU(), nn.ZeroPad2d((-1, -1, 0, 0)),
        nn.Conv2d(24, 16, 1, 3), nn.LeakyReLU(0.2),
    )  # fmt: skip


@network((16, 1, 1))
def one_pixel() -> nn.Module:
    """Maps of one pixel, with filters larger than they are."""
    return nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 24, 1), nn.ReLU(),
        nn.Conv2d(24, 8, 5, padding=2), nn.Flatten(),
    )  # fmt: skip


@network((8, 40, 40))
def wide_dilation() -> nn.Module:
    """Dilation 16 reaches over the border; a dilation for each axis."""
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=16, dilation=16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=(1, 6), dilation=(1, 6)), nn.ReLU(),
        nn.Conv2d(16, 8, 3, 2, padding=3, dilation=3),
    )  # fmt: skip


@network((16, 20, 20))
def residual_twice() -> nn.Module:
    """No bias; one value is the residual of two sums and of itself."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        y = net.a(x)
        z = F.relu(net.b(y) + y)
        z = net.c(z) + y
        return z + z

    parts = {n: nn.Conv2d(16, 16, 3, padding=1, bias=False) for n in "abc"}
    return Apply(forward, **parts)


@network((8, 18, 18))
def output_and_input() -> nn.Module:
    """Results that others read as well, raw and activated, one of them twice, and the input."""

    def forward(net: Apply, x: Tensor) -> tuple[Tensor, ...]:
        y = net.a(x)
        z = F.relu(y)
        w = net.b(z) + net.c(y)
        return y, w, z, w, x

    return Apply(
        forward,
        a=nn.Conv2d(8, 16, 3, padding=1),
        b=nn.Conv2d(16, 16, 1),
        c=nn.Conv2d(16, 16, 3, padding=1, bias=False),
    )


@network((2, 40), (4, 6, 8, 8), (3, 16, 16))
def other_dimensions() -> nn.Module:
    """A network of three inputs with convolutions of one, two and three dimensions."""

    def forward(net: Apply, s: Tensor, v: Tensor, x: Tensor) -> Tensor:
        a = F.relu(net.one(s)).mean(2)
        b = F.relu(net.three(v)).mean((2, 3, 4))
        return net.last(torch.cat([a, b, net.two(x).mean((2, 3))], 1))

    return Apply(
        forward,
        one=nn.Conv1d(2, 8, 5, 2, 2),
        three=nn.Conv3d(4, 8, 3, padding=1),
        two=conv(3, 16),
        last=nn.Linear(32, 6),
    )


@network((32, 12, 12))
def shared_filters() -> nn.Module:
    """One layer three times on its own result, as recurrent networks do."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        for _ in range(3):
            h = torch.tanh(net.step(x + h))
        return net.last(h)

    return Apply(forward, step=nn.Conv2d(32, 32, 3, padding=1), last=head(32))


@network((16, 14, 14))
def many_branches() -> nn.Module:
    """Twelve branches of unlike depth on one value, a sum of all."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        total = x
        for branch in net.branches:
            total = total + branch(x)
        return total

    def branch(i: int) -> nn.Module:
        return nn.Sequential(*[conv(16, 16, 1 + 2 * (i % 3)) for _ in range(1 + i % 4)])

    return Apply(forward, branches=nn.ModuleList(branch(i) for i in range(12)))


@network((3, 30, 30))
def large_filters() -> nn.Module:
    """RepLKNet: 31x31 and 13x13 depthwise with a small one beside; an even filter size."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        x = F.relu(net.big(x) + net.small(x))
        return net.last(F.relu(net.mid(x) + x))

    return Apply(
        forward,
        stem=conv(3, 16, 2, 2, padding=0),
        big=linear(16, 16, 31, groups=16),
        small=linear(16, 16, 5, groups=16),
        mid=linear(16, 16, 13, groups=16),
        last=nn.Conv2d(16, 8, 4),
    )


@network((8, 16, 16))
def odd_activations() -> nn.Module:
    """An activation behind each convolution that no library's epilogue knows."""
    layers: list[nn.Module] = []
    for act in (
        nn.Softplus(), nn.Softsign(), nn.Hardtanh(-0.7, 0.4), nn.ELU(),
        nn.GELU(approximate="tanh"), nn.LogSigmoid(), nn.Tanhshrink(), nn.Threshold(0.1, 0.2),
        nn.Softmax(1), nn.ReLU6(),
    ):  # fmt: skip
        layers += [nn.Conv2d(8, 8, 3, padding=1), act]
    return nn.Sequential(*layers)

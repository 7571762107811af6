"""What networks for small devices are built of: depthwise and grouped filters, gates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .registry import Apply, conv, head, linear, network

IMAGE = (3, 40, 40)


class SqueezeExcite(nn.Module):
    def __init__(self, c: int, squeezed: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)
        self.act, self.gate = act, gate

    def forward(self, x: Tensor) -> Tensor:
        y = F.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.up(self.act(self.down(y))))


class Inverted(nn.Module):
    """Expand, depthwise, gate, project; a shortcut where shapes allow it."""

    def __init__(self, c: int, e: int, k: int, r: int, stride: int, act: nn.Module,
                 gate: nn.Module) -> None:  # fmt: skip
        super().__init__()
        self.body = nn.Sequential(
            conv(c, e, 1, act=act), conv(e, e, r, stride, act, groups=e),
            SqueezeExcite(e, max(4, c // 4), act, gate), linear(e, k),
        )  # fmt: skip
        self.same = c == k and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


@network(IMAGE)
def efficientnet() -> nn.Module:
    options = nn.SiLU(), nn.Sigmoid()
    return nn.Sequential(
        conv(3, 16, 3, 2, nn.SiLU()), Inverted(16, 64, 24, 5, 2, *options),
        Inverted(24, 96, 24, 3, 1, *options), conv(24, 64, 1, act=nn.SiLU()), head(64),
    )  # fmt: skip


@network(IMAGE)
def mobilenet_v3() -> nn.Module:
    options = nn.Hardswish(), nn.Hardsigmoid()
    return nn.Sequential(
        conv(3, 16, 3, 2, nn.Hardswish()), Inverted(16, 40, 16, 3, 1, *options),
        Inverted(16, 72, 24, 5, 2, *options), head(24),
    )  # fmt: skip


@network(IMAGE)
def shufflenet() -> nn.Module:
    """Half of the channels pass by; halves are interleaved behind each block."""

    class Block(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            c = c // 2
            self.body = nn.Sequential(conv(c, c, 1), linear(c, c, 3, groups=c), conv(c, c, 1))

        def forward(self, x: Tensor) -> Tensor:
            a, b = x.chunk(2, 1)
            n, c, h, w = x.shape
            y = torch.cat([a, self.body(b)], 1).view(n, 2, c // 2, h, w)
            return y.transpose(1, 2).reshape(n, c, h, w)

    return nn.Sequential(
        conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1), Block(24), Block(24), head(24)
    )  # fmt: skip


@network(IMAGE)
def shufflenet_v1() -> nn.Module:
    """Grouped 1x1 filters with a shuffle between them, pooled shortcut put beside."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        y = F.channel_shuffle(net.a(x), 3)
        y = torch.cat([F.avg_pool2d(x, 3, 2, 1), net.c(net.b(y))], 1)
        return net.last(F.relu(y))

    return Apply(
        forward,
        stem=conv(3, 24, 3, 2),
        a=conv(24, 12, 1, groups=3),
        b=linear(12, 12, 3, 2, groups=12),
        c=linear(12, 36, 1, groups=3),
        last=head(60),
    )


@network(IMAGE)
def ghostnet() -> nn.Module:
    """Half of the maps are made from the other half by a cheap depthwise filter."""

    class Ghost(nn.Module):
        def __init__(self, c: int, k: int) -> None:
            super().__init__()
            self.k = k
            m = (k + 1) // 2
            self.first, self.cheap = conv(c, m, 1), conv(m, m, 3, groups=m)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return torch.cat([x, self.cheap(x)], 1)[:, : self.k]

    return nn.Sequential(conv(3, 16, 3, 2), Ghost(16, 24), Ghost(24, 33), head(33))


@network(IMAGE)
def mixed_depthwise() -> nn.Module:
    """MixNet: depthwise filters of several sizes on unequal slices."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        u, v, w = torch.split(net.stem(x), [11, 8, 5], 1)
        return net.last(F.silu(torch.cat([net.a(u), net.b(v), net.c(w)], 1)))

    return Apply(
        forward,
        stem=conv(3, 24, 3, 2),
        a=linear(11, 11, 3, groups=11),
        b=linear(8, 8, 5, groups=8),
        c=linear(5, 5, 9, groups=5),
        last=head(24),
    )


@network(IMAGE)
def coordinate_attention() -> nn.Module:
    """Pooled along each axis, put together, split again, two gates that broadcast."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        h, w = x.shape[2:]
        a, b = x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)
        y = net.squeeze(torch.cat([a, b], 2))
        a, b = torch.split(y, [h, w], 2)
        x = x * torch.sigmoid(net.rows(a)) * torch.sigmoid(net.cols(b.transpose(2, 3)))
        return net.last(x)

    return Apply(
        forward,
        stem=conv(3, 24, 3, 2),
        squeeze=conv(24, 8, 1, act=nn.Hardswish()),
        rows=nn.Conv2d(8, 24, 1),
        cols=nn.Conv2d(8, 24, 1),
        last=conv(24, 16),
    )

"""What image classifiers are built of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .registry import Apply, conv, head, linear, network

IMAGE = (3, 48, 48)


@network(IMAGE)
def convnext() -> nn.Module:
    """Patches, 7x7 depthwise, a norm over channels in last place, GELU, a learned scale."""

    class Block(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.spread = nn.Conv2d(c, c, 7, padding=3, groups=c)
            self.norm = nn.LayerNorm(c)
            self.wide, self.back = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
            self.gamma = nn.Parameter(torch.full((c,), 0.3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.spread(x).permute(0, 2, 3, 1))
            y = self.gamma * self.back(F.gelu(self.wide(y)))
            return x + y.permute(0, 3, 1, 2)

    down = nn.Sequential(nn.GroupNorm(1, 24), nn.Conv2d(24, 48, 2, 2))
    return nn.Sequential(nn.Conv2d(3, 24, 4, 4), Block(24), down, Block(48), head(48))


@network(IMAGE)
def inception_resnet() -> nn.Module:
    """1x7 and 7x1 filters in one of two branches, a scaled sum."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        x = F.relu(x + 0.17 * net.up(torch.cat([net.a(x), net.b(x)], 1)))
        return net.last(x)

    b = nn.Sequential(
        conv(32, 16, 1), conv(16, 20, (1, 7)), conv(20, 24, (7, 1))
    )  # fmt: skip
    return Apply(
        forward,
        stem=conv(3, 32, 3, 2),
        a=conv(32, 24, 1),
        b=b,
        up=nn.Conv2d(48, 32, 1),
        last=head(32),
    )


@network(IMAGE)
def regnet() -> nn.Module:
    """Grouped 3x3 of group width 8, a projected shortcut, SE of the input's width."""

    class Block(nn.Module):
        def __init__(self, c: int, k: int) -> None:
            super().__init__()
            self.a, self.b = conv(c, k, 1), conv(k, k, 3, 2, groups=k // 8)
            self.down, self.up = nn.Conv2d(k, c // 4, 1), nn.Conv2d(c // 4, k, 1)
            self.c, self.skip = linear(k, k), linear(c, k, 1, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.b(self.a(x))
            gate = self.up(F.relu(self.down(y.mean((2, 3), keepdim=True))))
            return F.relu(self.c(y * torch.sigmoid(gate)) + self.skip(x))

    return nn.Sequential(conv(3, 16, 3, 2), Block(16, 32), Block(32, 48), head(48))


@network(IMAGE)
def res2net() -> nn.Module:
    """Slices of the channels, each sees the one before it."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        a, b, c, d = torch.chunk(x, 4, 1)
        b = net.one(b)
        c = net.two(c + b)
        return net.last(F.relu(net.join(torch.cat([a, b, c, net.three(d + c)], 1)) + x))

    parts = {name: conv(8, 8) for name in ("one", "two", "three")}
    return Apply(forward, stem=conv(3, 32, 3, 2), join=linear(32, 32), last=head(32), **parts)


@network(IMAGE)
def nfnet() -> nn.Module:
    """No norms: filters standardised on the way, scaled activations."""

    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            mean = w.mean((1, 2, 3), keepdim=True)
            var = ((w - mean) ** 2).mean((1, 2, 3), keepdim=True)
            w = (w - mean) * torch.rsqrt(var * w[0].numel() + 1e-4)
            return F.conv2d(x, w, self.bias, self.stride, self.padding, 1, self.groups)

    class Block(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.a, self.b = Standardised(c, c, 1), Standardised(c, c, 3, padding=1, groups=2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(F.gelu(x) * 1.7 * 0.9)
            return x + 0.2 * self.b(F.gelu(y) * 1.7)

    return nn.Sequential(Standardised(3, 32, 3, 2, 1), Block(32), Block(32), head(32))


@network(IMAGE)
def cspnet() -> nn.Module:
    """Half of the channels pass by a dense block."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = net.stem(x)
        by, y = x[:, :16], x[:, 16:]
        y = torch.cat([y, net.one(y)], 1)
        y = torch.cat([y, net.two(y)], 1)
        return net.last(net.join(torch.cat([by, y], 1)))

    return Apply(
        forward,
        stem=conv(3, 32, 3, 2, nn.LeakyReLU(0.1)),
        one=conv(16, 8, act=nn.Mish()),
        two=conv(24, 8, act=nn.Mish()),
        join=conv(48, 40, 1),
        last=head(40),
    )


@network(IMAGE)
def squeezenet() -> nn.Module:
    """Fire modules, a classifier of convolutions, pooling with a ceiling."""

    class Fire(nn.Module):
        def __init__(self, c: int, s: int, e: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(c, s, 1)
            self.one, self.three = nn.Conv2d(s, e, 1), nn.Conv2d(s, e, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.squeeze(x))
            return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)

    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(24, 8, 16),
        Fire(32, 8, 24), nn.Dropout(), nn.Conv2d(48, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )  # fmt: skip


@network(IMAGE)
def hrnet() -> nn.Module:
    """Two resolutions side by side that exchange sums."""

    def forward(net: Apply, x: Tensor) -> tuple[Tensor, Tensor]:
        x = net.stem(x)
        a, b = net.fine(x), net.coarse(net.split(x))
        a2 = F.relu(a + F.interpolate(net.up(b), scale_factor=2, mode="nearest"))
        b2 = F.relu(net.down(a) + b)
        return net.last(a2), b2

    return Apply(
        forward,
        stem=conv(3, 16, 3, 2),
        fine=conv(16, 16),
        split=conv(16, 32, 3, 2),
        coarse=conv(32, 32),
        up=linear(32, 16),
        down=linear(16, 32, 3, 2),
        last=nn.Conv2d(16, 5, 1),
    )


@network(IMAGE)
def vit() -> nn.Module:
    """A convolution makes tokens; attention and an MLP of matmuls."""

    class Vit(nn.Module):
        def __init__(self, d: int = 32, heads: int = 4) -> None:
            super().__init__()
            self.patches, self.heads = nn.Conv2d(3, d, 8, 8), heads
            self.token = nn.Parameter(torch.randn(1, 1, d) * 0.1)
            self.place = nn.Parameter(torch.randn(1, 37, d) * 0.1)
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.wide, self.back, self.last = (
                nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, 10)
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
            n, t, d = x.shape
            qkv = self.qkv(self.n1(x)).reshape(n, t, 3, self.heads, d // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
            x = x + self.back(F.gelu(self.wide(self.n2(x))))
            return self.last(x[:, 0])

    return Vit()

"""What networks with pictures as results are built of: segmentation, detection, generation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .registry import Apply, conv, linear, network


@network((3, 32, 48))
def unet() -> nn.Module:
    """Down, up by transposed convolutions, concatenated with the skip connections."""

    def twice(c: int, k: int) -> nn.Module:
        return nn.Sequential(conv(c, k), conv(k, k))

    def forward(net: Apply, x: Tensor) -> Tensor:
        one = net.a(x)
        two = net.b(F.max_pool2d(one, 2))
        y = net.up2(net.c(F.max_pool2d(two, 2)))
        y = net.up1(net.d(torch.cat([two, y], 1)))
        return net.last(net.e(torch.cat([one, y], 1)))

    return Apply(
        forward,
        a=twice(3, 16),
        b=twice(16, 32),
        c=twice(32, 48),
        d=twice(64, 32),
        up2=nn.ConvTranspose2d(48, 32, 2, 2),
        up1=nn.ConvTranspose2d(32, 16, 2, 2),
        e=twice(32, 16),
        last=nn.Conv2d(16, 4, 1),
    )


@network((3, 33, 33))
def deeplab() -> nn.Module:
    """Branches of dilations 1, 6, 12 and a pooled one; bilinear to an odd size."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        size = x.shape[2:]
        x = net.stem(x)
        parts = [branch(x) for branch in net.branches]
        pooled = F.interpolate(net.pool(x), size=x.shape[2:], mode="bilinear", align_corners=False)
        y = net.last(net.join(torch.cat([*parts, pooled], 1)))
        return F.interpolate(y, size=size, mode="bilinear", align_corners=False)

    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 16, 1), nn.ReLU())
    atrous = [conv(24, 16, dilation=d, padding=d) for d in (6, 12)]
    return Apply(
        forward,
        stem=conv(3, 24, 3, 2),
        pool=pool,
        join=conv(64, 32, 1),
        last=nn.Conv2d(32, 5, 1),
        branches=nn.ModuleList([conv(24, 16, 1), *atrous]),
    )


@network((3, 64, 64))
def feature_pyramid() -> nn.Module:
    """Laterals, sums with the coarser level, one head with the same filters on all levels."""

    def forward(net: Apply, x: Tensor) -> list[Tensor]:
        a = net.c2(x)
        b = net.c3(a)
        p4 = net.l4(net.c4(b))
        p3 = net.l3(b) + F.interpolate(p4, scale_factor=2.0, mode="nearest")
        p2 = net.l2(a) + F.interpolate(p3, scale_factor=2.0, mode="nearest")
        return [net.box(F.relu(net.smooth(p))) for p in (p2, p3, p4)]

    return Apply(
        forward,
        c2=conv(3, 16, 3, 4),
        c3=conv(16, 32, 3, 2),
        c4=conv(32, 64, 3, 2),
        l2=nn.Conv2d(16, 24, 1),
        l3=nn.Conv2d(32, 24, 1),
        l4=nn.Conv2d(64, 24, 1),
        smooth=nn.Conv2d(24, 24, 3, padding=1),
        box=nn.Conv2d(24, 12, 3, padding=1),
    )


@network((3, 64, 64))
def yolo() -> nn.Module:
    """Focus, pools of several sizes, two scales, boxes in a grid with sigmoid and exponential."""

    def boxes(y: Tensor, anchors: int = 3) -> Tensor:
        n, _, h, w = y.shape
        y = y.view(n, anchors, 7, h, w).permute(0, 1, 3, 4, 2)
        rows = torch.arange(h, dtype=y.dtype, device=y.device).view(1, 1, h, 1, 1)
        cols = torch.arange(w, dtype=y.dtype, device=y.device).view(1, 1, 1, w, 1)
        x0 = (torch.sigmoid(y[..., 0:1]) + cols) / w
        y0 = (torch.sigmoid(y[..., 1:2]) + rows) / h
        size = torch.exp(torch.clamp(y[..., 2:4], max=3.0)) * 0.1
        return torch.cat([x0, y0, size, torch.sigmoid(y[..., 4:])], -1).reshape(n, -1, 7)

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = torch.cat([x[..., a::2, b::2] for a in (0, 1) for b in (0, 1)], 1)
        fine = net.stem(x)
        y = net.down(fine)
        y = net.neck(torch.cat([y] + [F.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13)], 1))
        fine = torch.cat([F.interpolate(net.up(y), scale_factor=2.0), fine], 1)
        return torch.cat([boxes(net.big(y)), boxes(net.small(fine))], 1)

    act = nn.SiLU()
    return Apply(
        forward,
        stem=conv(12, 24, 3, 2, act),
        down=conv(24, 32, 3, 2, act),
        neck=conv(128, 32, 1, act=act),
        up=conv(32, 16, 1, act=act),
        big=nn.Conv2d(32, 21, 1),
        small=nn.Conv2d(40, 21, 1),
    )


@network((16,))
def generator() -> nn.Module:
    """A GAN's: from a vector by transposed convolutions of 4x4 and stride 2, tanh."""

    def up(c: int, k: int) -> nn.Module:
        return nn.Sequential(
            nn.ConvTranspose2d(c, k, 4, 2, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU()
        )

    return nn.Sequential(
        nn.Unflatten(1, (16, 1, 1)), nn.ConvTranspose2d(16, 48, 4, bias=False), nn.BatchNorm2d(48),
        nn.ReLU(), up(48, 32), up(32, 16), nn.ConvTranspose2d(16, 3, 3, 2, 1, 1), nn.Tanh(),
    )  # fmt: skip


@network((3, 20, 28))
def super_resolution() -> nn.Module:
    """EDSR: residuals without norms, channels become pixels, PReLU, a long skip."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        a = net.first(x)
        y = net.act(F.pixel_shuffle(net.up(a + 0.1 * net.body(a)), 2))
        return net.last(y) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)

    body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(16, 16, 3, padding=1))  # fmt: skip
    return Apply(
        forward,
        first=nn.Conv2d(3, 16, 5, padding=2),
        body=body,
        act=nn.PReLU(16),
        up=nn.Conv2d(16, 64, 3, padding=1),
        last=nn.Conv2d(16, 3, 3, padding=1),
    )


@network((3, 32, 32))
def hourglass() -> nn.Module:
    """Pools down and repeats up again, a sum at each level; pre-activation blocks."""

    class Residual(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.n1, self.n2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c // 2)
            self.a, self.b = nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, c, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.b(F.relu(self.n2(self.a(F.relu(self.n1(x))))))

    class Level(nn.Module):
        def __init__(self, depth: int, c: int) -> None:
            super().__init__()
            self.skip, self.down, self.up = Residual(c), Residual(c), Residual(c)
            self.inner = Level(depth - 1, c) if depth > 1 else Residual(c)

        def forward(self, x: Tensor) -> Tensor:
            y = self.up(self.inner(self.down(F.max_pool2d(x, 2))))
            return self.skip(x) + F.interpolate(y, scale_factor=2, mode="nearest")

    return nn.Sequential(conv(3, 16), Level(3, 16), nn.Conv2d(16, 6, 1))


@network((3, 36, 36))
def style_transfer() -> nn.Module:
    """Reflected borders, instance norms, a 9x9 filter."""

    def layer(c: int, k: int, r: int, stride: int = 1) -> nn.Module:
        pad = nn.ReflectionPad2d(r // 2)
        return nn.Sequential(pad, nn.Conv2d(c, k, r, stride), nn.InstanceNorm2d(k, affine=True),
                             nn.ReLU())  # fmt: skip

    return nn.Sequential(layer(3, 16, 9), layer(16, 24, 3, 2), nn.Upsample(scale_factor=2),
                         layer(24, 16, 3), nn.ReplicationPad2d(1), nn.Conv2d(16, 3, 3))  # fmt: skip


@network((3, 24, 24), (3, 8, 8))
def tracker() -> nn.Module:
    """Filters from a second input: the template is searched for in the picture, each channel by
    itself and each sample of the batch by itself."""

    def forward(net: Apply, x: Tensor, template: Tensor) -> Tensor:
        a, b = net.body(x), net.body(template)
        n, c, h, w = a.shape
        y = F.conv2d(a.reshape(1, n * c, h, w), b.reshape(n * c, 1, *b.shape[2:]), groups=n * c)
        return net.last(y.reshape(n, c, *y.shape[2:]))

    return Apply(forward, body=nn.Sequential(conv(3, 16), linear(16, 16)), last=nn.Conv2d(16, 2, 1))


@network((2, 32, 32))
def partial_and_gated() -> nn.Module:
    """Inpainting: a convolution's result gated by the sigmoid of another of the same input."""

    def forward(net: Apply, x: Tensor) -> Tensor:
        x = F.elu(net.a(x)) * torch.sigmoid(net.gate(x))
        return torch.tanh(net.b(x)) * torch.sigmoid(net.gate2(x))

    return Apply(
        forward,
        a=nn.Conv2d(2, 24, 5, 2, 2),
        gate=nn.Conv2d(2, 24, 5, 2, 2),
        b=nn.Conv2d(24, 8, 3, padding=4, dilation=4),
        gate2=nn.Conv2d(24, 8, 3, padding=4, dilation=4),
    )

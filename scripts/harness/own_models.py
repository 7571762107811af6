"""Networks that torchvision's classifiers and segmenters do not cover, at their usual sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(
    c: int, k: int, size: int = 3, stride: int = 1, act: type[nn.Module] = nn.ReLU
) -> nn.Module:
    """Convolution that keeps, or divides, the size; batch norm, activation."""
    layer = nn.Conv2d(c, k, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(k), act())


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with padding and batch norms; 31 million weights."""

    def __init__(
        self, classes: int = 2, widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    ) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.first = self._twice(3, widths[0])
        self.down = nn.ModuleList([self._twice(a, b) for a, b in pairs])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs])
        self.join = nn.ModuleList([self._twice(2 * a, a) for a, _ in pairs])
        self.last = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def _twice(c: int, k: int) -> nn.Module:
        return nn.Sequential(conv(c, k), conv(k, k))

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for i in reversed(range(len(self.up))):
            y = self.join[i](torch.cat([kept.pop(), self.up[i](y)], 1))
        return self.last(y)


class Split(nn.Module):
    """The block of YOLOv8 (C2f): two halves, one of them through bottlenecks, all joined."""

    def __init__(self, c: int, k: int, depth: int, residual: bool) -> None:
        super().__init__()
        half, self.residual = k // 2, residual
        self.first = conv(c, k, 1, act=nn.SiLU)
        pair = [conv(half, half, act=nn.SiLU) for _ in range(2 * depth)]
        self.blocks = nn.ModuleList([nn.Sequential(*pair[2 * i : 2 * i + 2]) for i in range(depth)])
        self.last = conv((2 + depth) * half, k, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        halves = self.first(x).chunk(2, 1)
        parts = [halves[0], halves[1]]  # which torch.fx can trace
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector of the shape of YOLOv8n: backbone, pooling pyramid, paths up and down, and a map
    of boxes and classes of each of three sizes."""

    def __init__(self, classes: int = 80, boxes: int = 64) -> None:
        super().__init__()

        def step(c: int, k: int) -> nn.Module:
            return conv(c, k, 3, 2, nn.SiLU)

        self.stem = nn.Sequential(step(3, 16), step(16, 32), Split(32, 32, 1, True))
        self.p3 = nn.Sequential(step(32, 64), Split(64, 64, 2, True))
        self.p4 = nn.Sequential(step(64, 128), Split(128, 128, 2, True))
        self.p5 = nn.Sequential(step(128, 256), Split(256, 256, 1, True))
        self.narrow, self.widen = conv(256, 128, 1, act=nn.SiLU), conv(512, 256, 1, act=nn.SiLU)
        self.up4, self.up3 = Split(384, 128, 1, False), Split(192, 64, 1, False)
        self.step4, self.down4 = step(64, 64), Split(192, 128, 1, False)
        self.step5, self.down5 = step(128, 128), Split(384, 256, 1, False)
        self.boxes = nn.ModuleList([self._head(c, 64, boxes) for c in (64, 128, 256)])
        self.classes = nn.ModuleList([self._head(c, 80, classes) for c in (64, 128, 256)])

    @staticmethod
    def _head(c: int, k: int, out: int) -> nn.Module:
        layers = [conv(c, k, act=nn.SiLU), conv(k, k, act=nn.SiLU), nn.Conv2d(k, out, 1)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> list[Tensor]:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        pools = [self.narrow(self.p5(p4))]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        p5 = self.widen(torch.cat(pools, 1))
        n4 = self.up4(torch.cat([F.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([F.interpolate(n4, scale_factor=2.0), p3], 1))
        n4 = self.down4(torch.cat([self.step4(n3), n4], 1))
        n5 = self.down5(torch.cat([self.step5(n4), p5], 1))
        heads = zip((n3, n4, n5), self.boxes, self.classes, strict=True)
        return [torch.cat([boxes(y), classes(y)], 1) for y, boxes, classes in heads]


class Audio(nn.Module):
    """One-dimensional convolutions on waveforms (M18 of Dai et al., 2017)."""

    def __init__(self, classes: int = 35, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = self._conv(1, width, 80, 4)
        channels = width
        for stage in range(4):
            layers.append(nn.MaxPool1d(4))
            for _ in range(4):
                layers += self._conv(channels, width << stage, 3, 1)
                channels = width << stage
        self.features = nn.Sequential(*layers)
        self.last = nn.Linear(channels, classes)

    @staticmethod
    def _conv(c: int, k: int, size: int, stride: int) -> list[nn.Module]:
        layer = nn.Conv1d(c, k, size, stride, size // 2 if stride == 1 else 0, bias=False)
        return [layer, nn.BatchNorm1d(k), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.features(x).mean(2))


class Generator(nn.Module):
    """Images from images through transposed convolutions and instance norms (CycleGAN's generator,
    Zhu et al., 2017)."""

    def __init__(self, width: int = 64, blocks: int = 6) -> None:
        super().__init__()

        def layer(kind: type[nn.Module], c: int, k: int, size: int, **options: int) -> nn.Module:
            return nn.Sequential(kind(c, k, size, **options), nn.InstanceNorm2d(k), nn.ReLU())

        def same(c: int, k: int, size: int) -> list[nn.Module]:
            return [nn.ReflectionPad2d(size // 2), layer(nn.Conv2d, c, k, size)]

        narrow, middle, wide = width, 2 * width, 4 * width
        self.first = nn.Sequential(*same(3, narrow, 7))
        self.down = nn.Sequential(*(layer(nn.Conv2d, c, 2 * c, 3, stride=2, padding=1)
                                    for c in (narrow, middle)))  # fmt: skip
        self.blocks = nn.ModuleList([nn.Sequential(*same(wide, wide, 3), *same(wide, wide, 3))
                                     for _ in range(blocks)])  # fmt: skip
        options = {"stride": 2, "padding": 1, "output_padding": 1}
        self.up = nn.Sequential(*(layer(nn.ConvTranspose2d, c, c // 2, 3, **options)
                                  for c in (wide, middle)))  # fmt: skip
        self.last = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(narrow, 3, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.first(x))
        for block in self.blocks:
            y = y + block(y)
        return self.last(self.up(y))


def fpn() -> nn.Module:
    """ResNet-50 with the feature pyramid of detectors (torchvision.ops); five maps."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    class Maps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = resnet_fpn_backbone(
                backbone_name="resnet50", weights=None, norm_layer=nn.BatchNorm2d
            )

        def forward(self, x: Tensor) -> list[Tensor]:
            return list(self.backbone(x).values())

    return Maps()


#: How a network is made, dimensions of its input, and their usual size.
MODELS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "unet": (UNet, 2, 256),
    "yolo": (Yolo, 2, 640),
    "audio": (Audio, 1, 16000),
    "fpn": (fpn, 2, 512),
    "gan": (Generator, 2, 256),
}

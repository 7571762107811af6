"""convoy.compile of networks over volumes: video models, U-Nets, and their operators."""

from __future__ import annotations

from typing import Any

import pytest

import convoy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
F = nn.functional
X = (2, 3, 4, 6, 5)


def check(net: Any, shape: tuple[int, ...] = X) -> None:
    torch.manual_seed(0)
    for layer in net.modules():
        if getattr(layer, "running_mean", None) is not None:
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
    net, x = net.eval(), torch.randn(shape)
    with torch.no_grad():
        results = net(x), convoy.compile(net, x)(x)
    for want, got in zip(*map(several, results), strict=True):
        assert got.shape == want.shape
        assert (got - want).norm() <= 1e-5 * want.norm()


def several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


class Block(nn.Module):
    """A residual block of a video model: whole filters, or planes and time apart."""

    def __init__(self, c: int, k: int, stride: int, apart: bool) -> None:
        super().__init__()

        def conv(i: int, o: int, s: int) -> Any:
            if not apart:
                return nn.Conv3d(i, o, 3, s, 1, bias=False)
            return nn.Sequential(
                nn.Conv3d(i, 5, (1, 3, 3), (1, s, s), (0, 1, 1), bias=False),
                nn.BatchNorm3d(5),
                nn.ReLU(),
                nn.Conv3d(5, o, (3, 1, 1), (s, 1, 1), (1, 0, 0), bias=False),
            )

        self.a = nn.Sequential(conv(c, k, stride), nn.BatchNorm3d(k), nn.ReLU())
        self.b = nn.Sequential(conv(k, k, 1), nn.BatchNorm3d(k))
        self.down = nn.Sequential(nn.Conv3d(c, k, 1, stride, bias=False), nn.BatchNorm3d(k))

    def forward(self, x: Any) -> Any:
        return F.relu(self.b(self.a(x)) + self.down(x))


@pytest.mark.parametrize("apart", [False, True])
def test_video_model(apart: bool) -> None:
    stem = [nn.Conv3d(3, 4, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.BatchNorm3d(4), nn.ReLU()]
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 3)]
    check(nn.Sequential(*stem, Block(4, 4, 1, apart), Block(4, 8, 2, apart), *head))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(i: int, o: int) -> Any:
            norm = nn.InstanceNorm3d(o, affine=True)
            return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), norm, nn.LeakyReLU(0.01))

        self.a, self.b, self.c = block(3, 4), block(4, 8), block(8, 4)
        self.up, self.out = nn.ConvTranspose3d(8, 4, 2, 2), nn.Conv3d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        a = self.a(x)
        b = self.b(F.max_pool3d(a, 2))
        return self.out(self.c(torch.cat([self.up(b), a], 1)))


def test_unet() -> None:
    check(UNet(), (2, 3, 4, 6, 4))


#: Layers between convolutions.
LAYERS = [
    nn.GroupNorm(2, 4),
    nn.InstanceNorm3d(4, track_running_stats=True),
    nn.AvgPool3d(2, padding=1, count_include_pad=False),
    nn.AvgPool3d(3, 2, 1, ceil_mode=True),
    nn.AdaptiveAvgPool3d((2, 3, 2)),
    nn.MaxPool3d(3, 2, 1, ceil_mode=True),
    nn.Upsample(scale_factor=2),
    nn.Upsample(scale_factor=2, mode="trilinear"),
    nn.Upsample(size=(7, 9, 8), mode="trilinear", align_corners=True),
    nn.ConvTranspose3d(4, 6, (3, 2, 4), (2, 1, 2), (1, 0, 2), (1, 0, 1), groups=2),
    nn.ConvTranspose3d(4, 6, 3, dilation=(1, 2, 1)),
    nn.Conv3d(4, 8, 3, groups=4, padding=1),
]


class SideBySide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layers = nn.Conv3d(3, 4, 1), nn.ModuleList(LAYERS)

    def forward(self, x: Any) -> tuple[Any, ...]:
        x = self.stem(x)
        return tuple(F.silu(layer(x)) for layer in self.layers)


def test_layers_behind_a_convolution() -> None:
    """In one network: a network of each would take thrice the time."""
    check(SideBySide())


def test_instance_norm_of_images_keeps_them_apart() -> None:
    check(nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4)), (2, 3, 5, 5))


@pytest.mark.parametrize("rank", [2, 3])
def test_bfloat16_parameters_with_channels_last(rank: int) -> None:
    """PyTorch keeps their axes in order and changes the strides."""
    conv = (nn.Conv2d, nn.Conv3d)[rank - 2](8, 8, 3)
    layout = (torch.channels_last, torch.channels_last_3d)[rank - 2]
    net = conv.to(memory_format=layout).bfloat16().eval()
    x = torch.randn(1, 8, *(4,) * rank).bfloat16()
    with torch.no_grad():
        got, want = convoy.compile(net, x)(x).float(), net(x).float()
    assert (got - want).norm() <= 1e-2 * want.norm()

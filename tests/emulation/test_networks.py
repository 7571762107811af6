"""Networks as they are placed, lowered and scheduled for an H200, on the CPU: the kernels that TVM
generates, the memory plan and the events between streams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from convoy.ir.device import Device  # noqa: E402
from convoy.normalize import few_outputs  # noqa: E402
from convoy.pipeline.network import place  # noqa: E402
from convoy.pytorch.importer import to_relax, trace  # noqa: E402
from convoy.pytorch.structure import Arguments  # noqa: E402

from ..helpers.errors import l2_error  # noqa: E402
from .network import Emulation  # noqa: E402

NETWORKS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {}


def network(make: Callable[[], Any]) -> Callable[[], Any]:
    NETWORKS[make.__name__] = make
    return make


@network
def branches() -> tuple[nn.Module, torch.Tensor]:
    """Convolutions side by side, of pooled, upsampled and padded tensors."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU())
            self.sides = nn.ModuleList(nn.Conv2d(16, 8, k, padding=k // 2) for k in (1, 3, 5))
            self.low = nn.Conv2d(16, 8, 3, 2, 1)
            self.depthwise = nn.Conv2d(32, 32, 5, padding=2, groups=32)
            self.head = nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = self.stem(x)
            low = F.interpolate(self.low(x), scale_factor=2, mode="bilinear")
            y = torch.cat([*(side(x) for side in self.sides), low], 1)
            y = F.hardswish(self.depthwise(F.max_pool2d(y, 3, 1, 1)))
            return self.head(y.mean((2, 3))).log_softmax(-1), y.amax(1)

    return Branches(), torch.randn(2, 3, 24, 20)


@network
def image_to_image() -> tuple[nn.Module, torch.Tensor]:
    """Wide filters of few channels in front and behind, plain and transposed."""

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 16, 9, padding=4), nn.PReLU())
            self.body = nn.Conv2d(16, 16, 3, 2, 1)
            self.up = nn.ConvTranspose2d(16, 2, 4, 2, 1)
            self.out = nn.Conv2d(16, 3, 5, padding=2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.down(x)
            return torch.tanh(self.out(y)) + x, self.up(F.relu(self.body(y)))

    return Images(), torch.randn(2, 3, 24, 20)


@network
def norms_and_attention() -> tuple[nn.Module, torch.Tensor]:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.group = nn.Conv2d(8, 48, 3, 2, 1), nn.GroupNorm(4, 48)
            self.norm, self.rms = nn.LayerNorm(48), nn.RMSNorm(48)
            self.qkv, self.out = nn.Linear(48, 144), nn.Linear(48, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.gelu(self.group(self.conv(x))).flatten(2).transpose(1, 2)
            shape = (x.shape[0], x.shape[1], 3, 3, 16)
            q, k, v = self.qkv(self.norm(x)).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(F.normalize(q, dim=-1), k, v)
            y = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return self.rms(y).softmax(-1) * y.std(1, keepdim=True)

    return Mixed(), torch.randn(2, 8, 14, 10)


@network
def wide_head() -> tuple[nn.Module, torch.Tensor]:
    """The middle of a latent-diffusion decoder: two GEMMs and a softmax of scaled scores."""

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.GroupNorm(8, 136), nn.Conv2d(136, 3 * 136, 1)
            self.out = nn.Conv2d(136, 136, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, 1)
            weights = (q.transpose(1, 2) @ k * 136**-0.5).softmax(-1)
            y = (weights @ v.transpose(1, 2)).transpose(1, 2)
            return x + self.out(y.reshape(x.shape))

    return Middle(), torch.randn(2, 136, 8, 8)


@network
def signals() -> tuple[nn.Module, torch.Tensor]:
    """Dilated convolutions over one axis, norms over a whole sample, and a transposed one."""

    class Signals(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(1, 16, 8, 4)
            self.blocks = nn.ModuleList(
                nn.Sequential(
                    nn.Conv1d(16, 32, 1), nn.PReLU(), nn.GroupNorm(1, 32),
                    nn.Conv1d(32, 32, 3, padding=d, dilation=d, groups=32), nn.Conv1d(32, 16, 1),
                )
                for d in (1, 2)
            )  # fmt: skip
            self.last = nn.ConvTranspose1d(16, 1, 8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.first(x))
            y = x
            for block in self.blocks:
                y = y + block(y)
            return self.last(x * torch.sigmoid(y))

    return Signals(), torch.randn(1, 1, 300)


@network
def groups_and_responses() -> tuple[nn.Module, torch.Tensor]:
    """Split attention, a channel shuffle, norms of few and of single channels, response norms,
    filters times styles, and pools of equal windows."""

    class Groups(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 32, 3))
            self.instance, self.group = nn.InstanceNorm2d(32, affine=True), nn.GroupNorm(2, 32)
            self.split, self.attend = (
                nn.Conv2d(32, 32, 3, padding=1, groups=2),
                nn.Conv2d(16, 32, 1),
            )
            self.mix, self.last = nn.Conv2d(16, 24, 1), nn.Conv2d(24, 8, 3, padding=1)
            self.filters = nn.Parameter(torch.randn(24, 16, 3, 3) / 12)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            n, _, h, w = x.shape
            x = F.silu(self.group(F.relu(self.instance(self.stem(x)))))
            x = x.view(n, 2, 16, h, w).transpose(1, 2).reshape(n, 32, h, w)
            x = self.split(x).view(n, 2, 16, h, w)
            weights = self.attend(x.sum(1).mean((2, 3), keepdim=True)).view(n, 2, 16, 1, 1)
            x = (x * weights.softmax(1)).sum(1)
            styles = x.mean((2, 3)) + 1
            lengths = (self.filters * styles[:, None, :, None, None]).square().sum((2, 3, 4))
            x = F.gelu(self.mix(x)) * lengths.rsqrt()[:, :, None, None]
            response = torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)
            x = x + x * (response / (response.mean(1, keepdim=True) + 1e-6))
            return F.adaptive_avg_pool2d(x, (2, 2)), self.last(x)

    return Groups(), torch.randn(2, 3, 12, 16)


@network
def shifted_windows() -> tuple[nn.Module, torch.Tensor]:
    """Images rolled along both axes, wrapped around their edges, and cut into windows."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.outside = nn.Linear(16, 16), nn.Conv2d(16, 8, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            apart = torch.roll(x, (-2, -3), (1, 2)).view(2, 3, 4, 5, 4, 16).transpose(2, 3)
            y = self.inside(apart.reshape(30, 16, 16)).view(2, 3, 5, 4, 4, 16).transpose(2, 3)
            y = torch.roll(y.reshape(2, 12, 20, 16), (2, 3), (1, 2)) + x
            around = F.pad(y.permute(0, 3, 1, 2), (1, 2, 3, 4), mode="circular")
            return torch.roll(x, (5, 1, -3), (1, 2, 3)) * 2, self.outside(around * 2)

    return Windows(), torch.randn(2, 12, 20, 16)


@network
def untrained_norms_and_pyramids() -> tuple[nn.Module, torch.Tensor]:
    """Norms behind activations and in front of products, of which only some are nothing; maxima
    over windows of several sizes; excitations of lengths that are no powers of two."""

    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.mix = nn.Conv2d(3, 72, 4, 4), nn.Conv2d(72, 72, 1)
            self.across = nn.Conv2d(72, 72, 5, padding=2, groups=72)
            self.norms = nn.ModuleList(nn.BatchNorm2d(72, eps=0) for _ in range(4))
            nn.init.normal_(self.norms[2].bias)
            nn.init.normal_(self.norms[3].weight)
            self.narrow, self.wide = nn.Conv2d(72, 20, 1), nn.Conv2d(20, 72, 1)
            self.head = nn.Conv2d(4 * 72, 24, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norms[0](F.gelu(self.stem(x)))
            x = x + self.norms[1](F.gelu(self.across(x)))
            x = x + self.mix(self.norms[2](x))
            x = x * self.wide(F.relu(self.narrow(x.mean((2, 3), keepdim=True)))).sigmoid()
            x = x + self.mix(self.norms[3](x))
            pooled = [F.max_pool2d(x, k, 1, k // 2) for k in (9, 5, 13)]
            return self.head(torch.cat([x, *pooled], 1))

    return Norms(), torch.randn(2, 3, 40, 56)


@network
def one_pixel() -> tuple[nn.Module, torch.Tensor]:
    """Reductions of one element, and functions of their results."""

    class Pixel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 16, 3, 2), nn.LayerNorm(1)
            nn.init.normal_(self.norm.bias)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.conv(x)
            x = x + self.norm(x[..., None])[..., 0] * x[:, :1].softmax(1)
            gated = y * y.mean((2, 3), keepdim=True).sigmoid()
            pooled = 3 * y - F.max_pool2d(y, 1), F.avg_pool2d(y, 1).exp()
            spread = y + y.var((2, 3), correction=0, keepdim=True).exp()
            return gated, *pooled, spread, 2 * x - x.amax(0, keepdim=True)

    return Pixel(), torch.randn(1, 8, 4, 4)


#: Networks that are compiled in bfloat16 too without ``--slow``: between them they have the
#: operators whose kernels round or convert.
BFLOAT16 = ("branches", "norms_and_attention", "groups_and_responses")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float16") for name in NETWORKS),
        *(
            pytest.param(name, "bfloat16", marks=() if name in BFLOAT16 else pytest.mark.slow)
            for name in NETWORKS
        ),
    ],
)
def test_network(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_outputs, "_LEAST_GAIN", 0.0)  # also of small images
    torch.manual_seed(0)
    module, x = NETWORKS[name]()
    module.eval().to(getattr(torch, dtype))
    x = x.to(getattr(torch, dtype))
    with torch.no_grad():
        exact = _flat(copy.deepcopy(module).double()(x.double()))
        eager = _flat(module(x))
    tensors, structure = Arguments(module.forward).flatten((x,), {})
    mod = to_relax(trace(module, structure, tensors).program)
    placement = place(mod, precision=dtype, device=Device(), measure=False)
    inputs = [_array(t) for t in tensors]
    for seed, streams in enumerate((1, 3)):
        results = Emulation(placement, streams)(*inputs, seed=seed)
        for got, other, want in zip(results, eager, exact, strict=True):
            assert l2_error(got, want) <= 2 * l2_error(other, want) + 1e-4


def _flat(result: Any) -> list[np.ndarray]:
    results = result if isinstance(result, tuple) else (result,)
    return [r.double().numpy() for r in results]


def _array(tensor: torch.Tensor) -> np.ndarray:
    import ml_dtypes

    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)

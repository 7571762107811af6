"""Products of slices, permutations and reshapes of one tensor: one kernel each, and right."""

from __future__ import annotations

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from convoy.ir.device import Device  # noqa: E402
from convoy.pipeline.network import place  # noqa: E402
from convoy.pytorch.importer import to_relax, trace  # noqa: E402
from convoy.pytorch.structure import Arguments  # noqa: E402

from ..emulation.network import Emulation  # noqa: E402
from ..helpers.errors import l2_error  # noqa: E402


class Products(nn.Module):
    """A product of two parts of the channels of an image, or of its tokens, which are divided into
    heads, as one drawn at random permutes and reshapes them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.heads, self.dim = rng.choice((1, 2, 3)), rng.choice((8, 13, 24, 32))
        self.rows, self.columns = rng.choice(((7, 7), (5, 12), (16, 3), (14, 14)))
        self.parts, self.first = rng.choice((2, 3)), rng.random() < 0.5
        self.of_channels = rng.random() < 0.5
        self.scaled, self.back = rng.random() < 0.5, rng.random() < 0.7
        self.same = rng.random() < 0.2

    def data(self, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.randn(2, self.rows, self.columns, self.parts * self.heads * self.dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens = x.shape[0], self.rows * self.columns
        if self.first:  # parts are the slowest axis of the channels
            x = x.reshape(n, tokens, self.parts, self.heads, self.dim).permute(2, 0, 3, 1, 4)
            q, k = x[0], x[0 if self.same else self.parts - 1]
        else:
            size = self.heads * self.dim
            q, k = (
                x[..., at * size : (at + 1) * size]
                .reshape(n, tokens, self.heads, self.dim)
                .transpose(1, 2)
                for at in (0, 0 if self.same else self.parts - 1)
            )
        if self.scaled:
            q = q * 0.25
        if self.of_channels:
            return self.stored(q.transpose(-2, -1) @ k)
        return self.stored(q @ k.transpose(-2, -1))

    def stored(self, y: torch.Tensor) -> torch.Tensor:
        return y.transpose(1, 2).flatten(2) if self.back else y


def kernels_and_error(net: nn.Module, x: torch.Tensor, seed: int) -> tuple[list[str], float]:
    want = net.double()(x.half().double()).numpy()
    tensors, structure = Arguments(net.forward).flatten((x.half(),), {})
    mod = to_relax(trace(net.half(), structure, tensors).program)
    placement = place(mod, precision="float16", device=Device(), measure=False)
    emulation = Emulation(placement, 1)
    (got,) = emulation(*(tensor.numpy() for tensor in tensors), seed=seed)
    return [op.name for op in emulation.schedule.ops], l2_error(got.astype(np.float64), want)


@pytest.mark.parametrize("seed", range(8))
def test_one_kernel(seed: int) -> None:
    net = Products(seed)
    kernels, error = kernels_and_error(net, net.data(seed), seed)
    assert error < 1e-3
    assert len(kernels) == 1 + net.same, kernels

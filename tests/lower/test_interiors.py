"""Values that are read as they are and padded are written once, and right."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from convoy.ir.device import Device  # noqa: E402
from convoy.pipeline.network import place  # noqa: E402
from convoy.pytorch.importer import to_relax, trace  # noqa: E402
from convoy.pytorch.structure import Arguments  # noqa: E402

from ..emulation.network import Emulation  # noqa: E402
from ..helpers.errors import l2_error  # noqa: E402


class Residual(nn.Module):
    """Blocks that add what they pad; ``returned`` networks also return the last such value."""

    def __init__(self, mode: str, blocks: int, returned: bool = False) -> None:
        super().__init__()
        self.mode, self.returned = mode, returned
        self.first = nn.Conv2d(8, 16, 1)
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, (3, 5)) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = torch.sin(self.first(x))
        for block in self.blocks:
            value = x
            x = torch.sin(block(F.pad(x, (2, 2, 1, 1), self.mode))) + x
        return (x, value) if self.returned else (x,)


@pytest.mark.parametrize(
    ("mode", "returned", "kernels"),
    [
        ("reflect", False, 8), ("replicate", False, 8), ("circular", False, 8),
        ("reflect", True, 10),
    ],
)  # fmt: skip
def test_interior_of_a_padded_value_is_the_value(mode: str, returned: bool, kernels: int) -> None:
    net, x = Residual(mode, 2, returned).eval().half(), torch.randn(2, 8, 9, 11).half()
    with torch.no_grad():
        tensors, structure = Arguments(net.forward).flatten((x,), {})
        mod = to_relax(trace(net, structure, tensors).program)
        wants = net.double()(x.double())
    emulation = Emulation(place(mod, precision="float16", device=Device(), measure=False), 1)
    results = [*emulation(x.numpy(), seed=0), *emulation(x.numpy(), seed=1)]
    for got, want in zip(results, (*wants, *wants), strict=True):
        assert l2_error(got.astype(np.float64), want.numpy()) < 2e-3
    assert len(emulation.schedule.ops) == kernels, [op.name for op in emulation.schedule.ops]

"""Parts of tensors that several kernels read: no kernel copies them, and results are right."""

from __future__ import annotations

from collections.abc import Callable

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

Results = tuple[torch.Tensor, ...]


def gated(x: torch.Tensor) -> Results:
    """Halves that two kernels read."""
    a, b = x.chunk(2, -1)
    return a * b.sigmoid(), (a - b).transpose(1, 2)


def of_slices(x: torch.Tensor) -> Results:
    """A slice that is sliced again, once where no vector begins."""
    y = x[..., :25]
    a, b = y[..., :12], y[..., 13:]
    return a.exp() + 1, torch.maximum(a, b), (-b).transpose(1, 2)


def gathered(x: torch.Tensor) -> Results:
    """Arithmetic between parts that are copied, and beside them."""
    a, b = x.chunk(2, -1)
    return torch.cat([a, a * b.sigmoid() + b, b], -1), (a + b).transpose(1, 2)


def returned(x: torch.Tensor) -> Results:
    """One that the network returns is computed once, in the kernel of what is computed of it."""
    a = x[..., 8:16]
    return a, a.exp() + 1, (-a).transpose(1, 2)


class Function(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Results]) -> None:
        super().__init__()
        self.forward = function


@pytest.mark.parametrize(
    ("function", "kernels"), [(gated, 2), (of_slices, 3), (gathered, 2), (returned, 2)]
)
def test_readers_take_slices_from_the_complete_tensor(
    function: Callable[[torch.Tensor], Results], kernels: int
) -> None:
    x = torch.randn(2, 9, 32).half()
    net = Function(function)
    tensors, structure = Arguments(net.forward).flatten((x,), {})
    mod = to_relax(trace(net, structure, tensors).program)
    emulation = Emulation(place(mod, precision="float16", device=Device(), measure=False), 1)
    assert len(emulation.schedule.ops) == kernels, emulation.schedule.ops
    wants = function(x.double())
    results = [*emulation(x.numpy(), seed=0), *emulation(x.numpy(), seed=1)]
    for got, want in zip(results, (*wants, *wants), strict=True):
        assert l2_error(got.astype(np.float64), want.numpy()) < 1e-3

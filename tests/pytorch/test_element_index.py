"""Indices that are integer tensors without axes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convoy  # noqa: E402


class Schedule(torch.nn.Module):
    """Noise of a step of a diffusion, from a buffer and from a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alphas", torch.linspace(0.1, 1, 10))
        self.betas = torch.linspace(0, 2, 10)

    def forward(self, x: Any, t: Any) -> Any:
        return x * self.alphas[t].sqrt() + self.betas[t]


def reads(x: Any, i: Any, j: Any) -> Any:
    return (
        x[i], x[:, i], x[i, j], x[..., j], x[:, None, i, ..., j], x[i, 1], x[:, 1, j], x[i, :2],
        x[i, [0, 1]], x[[0, 1], :, j], x[torch.tensor([True, False, True]), i],
        x[x[:, 0, 0].argmax()], x[:, 1:, :][:, i], x[i.reshape(1)], x.select(-1, j),
        torch.select(x, 1, index=i), x.narrow(2, i, 2), torch.narrow(x, 0, start=i, length=1),
    )  # fmt: skip


def writes(x: Any, i: Any, j: Any) -> Any:
    y, z, u, v, w = (x * n for n in range(5))
    y[i] = 2.0
    z[:, j] = x[:, 0]
    u[..., 1, j] = x[:, 0, 0]
    v[i, j] += 1
    w[:, None, i, 1] = 5
    return y, z, u, v, w


@pytest.mark.parametrize("function", [reads, writes])
def test_as_pytorch(function: Any) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    i, j = torch.tensor(1), torch.tensor(-1, dtype=torch.int32)
    compiled = convoy.compile(function, (x, i, j), cache=False)
    for a, b in ((i, j), (torch.tensor(-2), torch.tensor(2, dtype=torch.int32))):
        torch.testing.assert_close(compiled(x, a, b), function(x, a, b))


def test_of_buffers() -> None:
    net, x, t = Schedule(), torch.ones(2, 3), torch.tensor(4)
    compiled = convoy.compile(net, (x, t), cache=False)
    for step in (t, torch.tensor(-1)):
        torch.testing.assert_close(compiled(x, step), net(x, step))

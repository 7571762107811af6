"""Modules of 16 bits that compute parts of themselves in float32, and casts that round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import convoy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

X = torch.tensor([[1000.0, 2000, -300, 5], [1, 2, 3, 4]])
MASK = torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, 0]])

#: Of values in 16 bits, of which float16 would overflow.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "mean of squares": lambda x, mask: (x.float() * x.float()).mean(-1),
    "mask of a whole row": lambda x, mask: ((1 - mask).float() * -1e9 + x.float()).softmax(-1),
    "smallest number": lambda x, mask: torch.where(
        mask > 2, x.float(), torch.finfo(torch.float32).min
    ).softmax(-1),
    "product": lambda x, mask: (x.float() * x.float() * x.float() * 1e-6).to(x.dtype),
    "overflow": lambda x, mask: (x.float() * 100).to(x.dtype).float(),
    "rounded": lambda x, mask: (x.float() + 0.03).to(x.dtype) * 2,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_casts_of_a_module_stay(dtype: str) -> None:
    x, mask = (value.to(getattr(torch, dtype)) for value in (X, MASK))

    def function(x: Any, mask: Any) -> tuple[Any, ...]:
        return tuple(case(x, mask) for case in CASES.values())

    got = convoy.compile(function, (x, mask), cache=False)(x, mask)
    for name, one, want in zip(CASES, got, function(x, mask), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-6, atol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_beyond_the_range_of_the_tensors(dtype: str) -> None:
    """PyTorch computes with them in float32: zero times -1e9 is zero, and 1e-8 moves the least."""
    x = torch.tensor([[0.0, 1, -2, 6e-8], [3e-5, 0.5, 1e-3, 7]]).to(getattr(torch, dtype))

    def function(x: Any) -> tuple[Any, ...]:
        small = torch.rsqrt(x.abs() + 1e-6), (x + 1e-8).abs().log(), x.add(x, alpha=1e-7)
        return *small, x * -1e9, x * 70000.0, 1e-7 / (x + 1), x / 1e-7, 1e-7 - x

    got = convoy.compile(function, (x,), cache=False)(x)
    eps = torch.finfo(x.dtype).eps  # a rounding that PyTorch makes and Convoy need not
    for one, want in zip(got, function(x), strict=True):
        torch.testing.assert_close(one, want, rtol=eps, atol=0)


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 3),
            nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 6), nn.LayerNorm(6),
        ).eval()  # fmt: skip

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        return y, y.softmax(-1)


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside: bool) -> None:
    """Around the module and in it; norms keep weights of float32 beside data of bfloat16."""
    torch.manual_seed(0)
    net, x = Normed(), torch.randn(2, 3, 8, 8)

    def cast(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return net(x)

    with torch.no_grad():
        want = cast(x)
        if inside:
            got = convoy.compile(cast, x, cache=False)(x)
        else:
            with torch.autocast("cpu", torch.bfloat16):
                got = convoy.compile(net, x, cache=False)(x)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)

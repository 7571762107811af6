"""Layers of a compiled module have the names of PyTorch's modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import convoy  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        conv = torch.nn.Conv2d(3, 8, 3)
        self.body = torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))
        self.head = torch.nn.Linear(4, 5)
        self.last = torch.nn.Parameter(torch.randn(5, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3))) @ self.last


def test_names_are_paths_of_modules() -> None:
    """What is outside of all inner modules has no name."""
    built = convoy.compile(Net().eval(), torch.zeros(2, 3, 12, 12)).built
    assert built.meta.layers == ("body.0", "body.2", "head", "")

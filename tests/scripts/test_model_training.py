"""Training steps of models beside PyTorch's, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness import model_training, models


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 5, 1)
        )

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def test_losses_of_all_systems_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = Net()
    monkeypatch.setattr(models, "make", lambda name, device: (net, (3, 6, 6)))
    limits = {"convoy": 300.0, "eager": 300.0}
    rows = model_training.work(
        "own.net", 2, list(limits), "float32", "cpu", seconds=0.01, limits=limits,
        caches=str(tmp_path),
    )  # fmt: skip
    assert [row["system"] for row in rows] == ["convoy", "eager"]
    for row in rows:
        assert row["losses"] == pytest.approx(row["float32_losses"], rel=1e-4) and row["ms"] > 0


def test_targets_have_the_shape_of_results() -> None:
    net, random = nn.Conv2d(3, 5, 1), torch.Generator()
    pixels = model_training.targets_of(net, torch.zeros(2, 3, 4, 6), random)
    assert pixels.shape == (2, 4, 6) and int(pixels.max()) < 5
    maps = [torch.full((2, 3), 2.0), torch.ones(2, 4)]
    assert float(model_training.loss_of(maps, pixels)) == 5.0

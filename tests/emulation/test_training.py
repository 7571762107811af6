"""A training step as it is placed, lowered and scheduled for an H200 against the same step for the
CPU: two steps, whose state is updated in place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from convoy.build_cache.source import Source  # noqa: E402
from convoy.ir.device import Device  # noqa: E402
from convoy.pipeline import build, place  # noqa: E402
from convoy.pytorch import training  # noqa: E402

from .network import Emulation  # noqa: E402


def test_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.Dropout(0.3),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GELU(), nn.Flatten(1), nn.LayerNorm(72),
        nn.Linear(72, 5),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), 0.05, weight_decay=0.1)
    x, labels = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 4, 2])
    modules: list[Any] = []

    def captured(network: Sequence[Source], *args: Any, **options: Any) -> Any:
        modules.append(network[0].module())
        return build(modules[0], *args, **options)

    monkeypatch.setattr(training.pipeline, "build_sources", captured)
    step = training.compile_training_step(
        net, nn.functional.cross_entropy, optimizer, x, labels,
        clip_norm=0.5, loss_scale="dynamic", cache=False,
    )  # fmt: skip
    names = [param.name for param in modules[0]["main"].params]
    values = {name: copy.deepcopy(step._session.session.input(name).numpy()) for name in names}
    values |= {"learning_rate": np.float32(0.05)}
    values |= dict(zip(step._inputs, (x.numpy(), labels.numpy()), strict=True))
    placement = place(modules[0], precision="float32", device=Device(), measure=False)
    emulation = Emulation(placement, 3)
    kernels = [op.name for op in emulation.schedule.ops]
    assert not [name for name in kernels if "silu_backward" in name]  # part of the norm's gradient
    state = step._session.step_info.state
    for seed in range(2):
        loss, *new = emulation(*(values[name] for name in names), seed=seed)
        assert float(loss) == pytest.approx(float(step(x, labels)), rel=1e-4)
        values |= dict(zip(state, new, strict=True))
        for name, want in step._session.state().items():
            error = np.abs(values[name] - want).max() / (np.abs(want).max() + 1e-3)
            assert error < 1e-3, f"{name}: {error:.1e}"

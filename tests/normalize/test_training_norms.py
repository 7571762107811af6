"""Batch norms of training steps over sequences, images and volumes: which operators they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from convoy.build_cache.source import Source  # noqa: E402
from convoy.graph.expr import op_name, shape_of  # noqa: E402
from convoy.graph.function import bindings_of  # noqa: E402
from convoy.normalize.normal_form import normalize  # noqa: E402
from convoy.pytorch import training  # noqa: E402

nn = torch.nn


class Captured(Exception):
    """Instead of a build, with the module of a step."""


def step_of(net: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def build(network: Sequence[Source], *_: Any, **__: Any) -> Any:
        raise Captured(network[0].module())

    monkeypatch.setattr(training.pipeline, "build_sources", build)
    labels = torch.zeros(len(x), dtype=torch.int64)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(Captured) as found:
        training.compile_training_step(net, nn.functional.cross_entropy, optimizer, x, labels)
    return found.value.args[0]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("momentum", [0.1, 0.3])
def test_forward_and_backward(axes: int, momentum: float, monkeypatch: pytest.MonkeyPatch) -> None:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1]
    net = nn.Sequential(
        conv(3, 8, 3), norm(8, momentum=momentum), nn.ReLU(), nn.Flatten(2)
    )  # fmt: skip
    head = nn.Sequential(net, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 5))
    mod = step_of(head, torch.randn(2, 3, *[6] * axes), monkeypatch)
    bindings = bindings_of(normalize(mod, dtype="float32")["main"])
    names = Counter(op_name(b.value).removeprefix("relax.") for b in bindings)
    parts = [f"convoy.batch_norm_{part}" for part in ("stats", "grad_stats", "grad_apply")]
    assert [names[part] for part in parts] == [1, 1, 1]
    assert not names["nn.batch_norm"] and not names["convoy.batch_norm_backward"]
    assert not names["convoy.relu_backward"]  # it is part of the norm's
    # The variance is moved by the statistics, and the convolution's bias has no gradient.
    (stats,) = (b.value for b in bindings if op_name(b.value) == f"relax.{parts[0]}")
    pixels = 2 * 4**axes
    assert float(stats.attrs["unbiased"]) == pytest.approx(pixels / (pixels - 1), rel=1e-6)
    sums = [b.value for b in bindings if op_name(b.value) == "relax.sum"]
    assert all(len(shape_of(call.args[0])) < 3 for call in sums)

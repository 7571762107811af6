"""Networks from TVM's PyTorch importer, with parameters inside or detached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convoy
from convoy.runtime import load_runtime

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def network() -> Any:
    """A stem, two residual blocks, a depthwise convolution and a classifier, batch norms set."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 1)
            self.norm2 = nn.BatchNorm2d(channels)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm1(self.conv1(x)))
            return nn.functional.silu(self.norm2(self.conv2(y)) + x)

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.MaxPool2d(3, 2, 1),
        Block(16),
        Block(16),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(0.5, 1.5)
            layer.bias.data.uniform_(-1, 1)
    return net


@pytest.mark.parametrize("detached", [False, True])
def test_torch_export(detached: bool) -> None:
    load_runtime()
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    net, x = network(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        exported = torch.export.export(net, (x,))
        mod = from_exported_program(exported, keep_params_as_input=detached)
        want = net(x).numpy()
    params = None
    if detached:
        mod, params = relax.frontend.detach_params(mod)
    built = convoy.build(mod, "llvm", params)
    assert [info.shape for info in built.meta.inputs] == [(2, 3, 32, 32)]
    (y,) = built.session()(x.numpy())
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()

    placed = convoy.place(mod, params, backends=("cutlass", "tvm"), kernels="all")
    epilogues = [choice.workload.epilogue.name for choice in placed.plan.choices]
    assert epilogues.count("residual_bias_silu") == 2 and "bias_clip[0,6]" in epilogues
    depthwise, classifier = placed.native
    assert depthwise.workload.groups == 16
    assert "few rows" in str(classifier)

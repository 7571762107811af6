"""Training steps of PyTorch modules against PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convoy import errors

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
cross_entropy = nn.functional.cross_entropy


def sgd(net: Any) -> Any:
    """Decay for weights, none for biases and norms."""
    weights = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": others}]
    return torch.optim.SGD(groups, lr=0.2, momentum=0.9)


def test_steps_are_pytorchs() -> None:
    from convoy.pytorch.training import compile_training_step

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(36, 5),
    )  # fmt: skip
    reference = copy.deepcopy(net)
    optimizers = sgd(net), sgd(reference)
    batches = [(torch.randn(4, 3, 6, 6), torch.randint(0, 5, (4,))) for _ in range(4)]
    step = compile_training_step(net, cross_entropy, optimizers[0], *batches[0])
    for i, (x, labels) in enumerate(batches):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.2 / (1 + i)
        want = cross_entropy(reference(x), labels)
        optimizers[1].zero_grad()
        want.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(x, labels), want.detach(), rtol=1e-5, atol=1e-5)
    step.update_module()
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
    with pytest.raises(errors.InvalidOption, match="float64"):
        step(batches[0][0].double(), batches[0][1])


def test_what_cannot_be_trained() -> None:
    from convoy.pytorch.training import compile_training_step

    x, labels = torch.randn(2, 3, 4, 4), torch.tensor([0, 1])
    net = nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten())
    cases = [
        (net, torch.optim.Adam(net.parameters()), errors.InvalidOption, "Adam"),
        (net, torch.optim.SGD(net.parameters(), 0.1, weight_decay=0.1), errors.InvalidOption,
         "weight_decay"),
        (net, torch.optim.SGD([net[0].bias], 0.1), errors.InvalidOption, "0.weight"),
        (nn.Sequential(*net, nn.Dropout()), sgd(net), errors.UnsupportedOp, "random numbers"),
    ]  # fmt: skip
    for module, optimizer, error, message in cases:
        with pytest.raises(error, match=message):
            compile_training_step(module, cross_entropy, optimizer, x, labels)

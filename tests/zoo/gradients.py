"""Gradients of a network's mean squares, by Convoy's training step and by PyTorch in float64.

With a learning rate of zero the weights stay, and velocities after a few steps are sums of the
gradients of all steps, so that eager, captured and replayed runs are all seen in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .registry import make

MOMENTUM = 0.5
Values = dict[str, np.ndarray]


class MeanSquares(nn.Module):
    """The sum over all outputs of the mean of their squares."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *inputs: Tensor) -> Tensor:
        result = self.net(*inputs)
        results = result if isinstance(result, (list, tuple)) else [result]
        return sum((y * y).mean() for y in results)  # type: ignore[return-value]


def training_step(name: str, inputs: list[Tensor]) -> tuple[Any, Values, list[str]]:
    """(TrainStep, values of all parameters by name, names of the network's inputs)."""
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    from convoy.training import Sgd, train_step

    loss = MeanSquares(make(name)).requires_grad_(True)
    exported = torch.export.export(loss, tuple(inputs))
    module = from_exported_program(
        exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    module, params = detach_params(module)
    names = [var.name for var in module["main"].params]
    values = dict(
        zip(names[len(inputs) :], [value.numpy() for value in params["main"]], strict=True)
    )
    trainable = [name for name in _by_name(loss) if name in values]
    return train_step(module, trainable, Sgd(MOMENTUM)), values, names[: len(inputs)]


def _by_name(loss: MeanSquares) -> dict[str, Tensor]:
    """Parameters as the importer names them."""
    return {"p_" + key.replace(".", "_"): value for key, value in loss.named_parameters()}


def of_convoy(session: Any, step: Any, names: list[str], data: list[list[Tensor]]) -> Values:
    """Velocities of a TrainingSession with learning rate zero after a step for each of ``data``."""
    for inputs in data:
        session(**{name: x.numpy() for name, x in zip(names, inputs, strict=True)})
    state = session.state()
    return {name: state[f"{name}_velocity"] for name in step.trainable}


def of_peer(name: str, data: list[list[Tensor]], dtype: torch.dtype) -> Values:
    """The same of PyTorch on the CPU."""
    loss = MeanSquares(make(name)).to(dtype).requires_grad_(True)
    velocities: Values = {}
    for inputs in data:
        loss.zero_grad()
        with torch.enable_grad():
            loss(*[x.to(dtype) for x in inputs]).backward()
        for key, parameter in _by_name(loss).items():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            old = velocities.get(key, 0.0)
            velocities[key] = MOMENTUM * np.asarray(old) + gradient.double().numpy()
    return velocities


def error(got: Values, want: Values) -> float:
    """Of all gradients together, relative, or of the worst one, relative to its own norm or a
    hundredth of the norm of all: whichever is larger. A bias in front of a norm has none."""
    total = float(np.sqrt(sum(np.sum(want[name] ** 2) for name in got)))
    apart = {name: float(np.linalg.norm(got[name] - want[name])) for name in got}
    together = float(np.sqrt(sum(e * e for e in apart.values()))) / total
    worst = max(e / max(np.linalg.norm(want[n]), 0.01 * total) for n, e in apart.items())
    found = max(together, float(worst))
    return found if np.isfinite(found) else float("inf")

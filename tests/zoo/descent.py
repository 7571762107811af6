"""Networks of ``convoy.training`` in PyTorch, in any precision: the reference of training steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

RATE_OF_MOVING, EPSILON = 0.1, 1e-5
AUTOCAST = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class Layers:
    """The methods of ``convoy.training.Network``, computed at once on NCHW tensors.

    ``values`` by name are used as they are; ``moved`` are the new moving statistics by name.
    """

    def __init__(self, x: torch.Tensor, values: Mapping[str, torch.Tensor]) -> None:
        self.x, self.values = x.permute(0, 3, 1, 2), values
        self.moved: dict[str, torch.Tensor] = {}

    def conv(
        self, x: torch.Tensor, channels: int, kernel: int, stride: int = 1,
        padding: int | None = None, dilation: int = 1, groups: int = 1, bias: bool = False,
        name: str = "",
    ) -> torch.Tensor:  # fmt: skip
        padding = dilation * (kernel - 1) // 2 if padding is None else padding
        w = self.values[f"{name}_weight"].permute(0, 3, 1, 2)
        b = self.values[f"{name}_bias"] if bias else None
        return functional.conv2d(x, w, b, stride, padding, dilation, groups)

    def batch_norm(self, x: torch.Tensor, gamma: float = 1.0, name: str = "") -> torch.Tensor:
        v = self.values
        wide = x.detach().to(v[f"{name}_gamma"].dtype)
        now = {"mean": wide.mean((0, 2, 3)), "var": wide.var((0, 2, 3), correction=0)}
        for kind, value in now.items():
            old = v[f"{name}_{kind}"].detach()
            self.moved[f"{name}_{kind}"] = old + RATE_OF_MOVING * (value - old)
        return functional.batch_norm(
            x, None, None, v[f"{name}_gamma"], v[f"{name}_beta"], training=True, eps=EPSILON
        )

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    def max_pool(self, x: torch.Tensor, size: int, stride: int, padding: int = 0) -> torch.Tensor:
        return functional.max_pool2d(x, size, stride, padding)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))

    def dense(self, x: torch.Tensor, units: int, name: str = "") -> torch.Tensor:
        return functional.linear(x, self.values[f"{name}_weight"], self.values[f"{name}_bias"])


class Descent:
    """Gradient descent of ``logits(Layers)`` with momentum from ``initial``.

    ``precision``: "float64", "float32" (strict), "tf32", or "float16" and "bfloat16", which are
    float32 under autocast.
    """

    def __init__(
        self, logits: Callable[[Any], Any], initial: Mapping[str, np.ndarray],
        trainable: tuple[str, ...], precision: str, rate: float, momentum: float, device: str,
    ) -> None:  # fmt: skip
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self.logits, self.trainable, self.precision = logits, trainable, precision
        self.rate, self.momentum, self.device = rate, momentum, device
        self.values = {
            name: torch.from_numpy(np.array(value)).to(device, self.dtype)
            for name, value in initial.items()
        }
        self.velocities: dict[str, torch.Tensor] = {}

    def step(self, x: np.ndarray, labels: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        """The loss before the update and the gradients by name; moving statistics move too."""
        torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        for name in self.trainable:
            self.values[name] = self.values[name].detach().requires_grad_()
        layers = Layers(torch.from_numpy(x).to(self.device, self.dtype), self.values)
        kind = AUTOCAST.get(self.precision)
        device = "cuda" if self.device.startswith("cuda") else "cpu"
        with torch.autocast(device, kind or torch.float16, enabled=kind is not None):
            logits = self.logits(layers)
        loss = functional.cross_entropy(
            logits.to(self.dtype), torch.from_numpy(labels).long().to(self.device)
        )
        found = torch.autograd.grad(loss, [self.values[name] for name in self.trainable])
        gradients = dict(zip(self.trainable, found, strict=True))
        for name, gradient in gradients.items():
            old = self.velocities.get(name)
            velocity = gradient if old is None else self.momentum * old + gradient
            self.velocities[name] = velocity
            self.values[name] = (self.values[name] - self.rate * velocity).detach()
        self.values |= layers.moved
        return float(loss.detach()), {n: g.cpu().double().numpy() for n, g in gradients.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Parameters and moving statistics by name."""
        return {name: value.detach().cpu().numpy() for name, value in self.values.items()}

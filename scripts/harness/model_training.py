"""Training steps of PyTorch models: Convoy and PyTorch, timed in turns in one process.

A step is forward, backward and SGD with momentum, with float32 weights, activations in 16 bits and
a dynamic loss scale; without dropout and stochastic depth, so that losses can be compared.
Convoy's is one compiled function; ``torch.compile`` compiles network and loss under autocast,
beside GradScaler and a fused optimizer; ``eager`` is the same without compilation.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from . import models
from .model_systems import MODES, Ready, System, in_turns, leaves, synchronizer
from .rows import Row
from .timing import Run

#: Steps whose losses are shown, and the first one's largest relative deviation from float32's.
STEPS, LIMIT = 3, 2e-2
RATE, MOMENTUM = 0.002, 0.9
#: Modules that draw random numbers, and the attribute that says how often.
_DROPS = {"DropPath": "drop_prob", "MultiheadAttention": "dropout", "StochasticDepth": "p"}

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def work(
    model: str, batch: int, systems: Sequence[str], precision: str, device: str = "cuda",
    **turns: Any,
) -> list[Row]:  # fmt: skip
    """Build steps on random images, compare their first losses with float32's and time them in
    turns: a row for each. Arguments are those of :func:`model_systems.work`."""
    net, shape = models.make(model, device)
    net = without_drops(net).train()
    random = torch.Generator().manual_seed(1)
    x = torch.randn(batch, *shape, generator=random).to(device)
    targets = targets_of(net, x, random)
    exact = float32_losses(net, x, targets)

    def make(system: System, row: Row) -> Ready:
        own, images, began = copy.deepcopy(net), x, time.perf_counter()
        if system.kind == "convoy":
            step = _convoy(system, own, x, targets, precision, row)
        else:
            layout = torch.channels_last if x.dim() == 4 else torch.preserve_format
            own, images = own.to(memory_format=layout), x.to(memory_format=layout)
            step = _pytorch(system, own, x.device.type, precision)
        losses = [float(step(images, targets)) for _ in range(STEPS)]
        error = abs(losses[0] / exact[0] - 1)
        row |= {"build_s": round(time.perf_counter() - began, 2), "error": error}
        row |= {"losses": losses, "float32_losses": exact}
        if not error <= LIMIT:
            raise AssertionError(f"first loss {losses[0]:.5f}, {exact[0]:.5f} in float32")
        run = Run(lambda: step(images, targets), synchronizer(x))
        return Ready({"ms": run})

    return in_turns([System.parse(text) for text in systems], make, **turns)


def loss_of(result: Any, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of classes, of each pixel or of the whole image; of several maps the mean of
    squares."""
    if isinstance(result, torch.Tensor):
        return F.cross_entropy(result.float(), targets)
    return torch.stack([y.float().square().mean() for y in leaves(result)]).sum()


@torch.no_grad()
def targets_of(net: nn.Module, x: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Random classes of the shape of the network's result."""
    result = copy.deepcopy(net).eval()(x[:1])
    classes, size = (result.shape[1], result.shape[2:]) if torch.is_tensor(result) else (1, ())
    return torch.randint(classes, (len(x), *size), generator=random).to(x.device)


def without_drops(net: nn.Module) -> nn.Module:
    """The network with nothing dropped."""
    for part in net.modules():
        name = _DROPS.get(type(part).__name__)
        if isinstance(part, nn.modules.dropout._DropoutNd):
            name = "p"
        if name:
            setattr(part, name, 0.0)
    return net


def float32_losses(net: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """The first losses of PyTorch's step in float32 without tf32."""
    net, losses = copy.deepcopy(net), []
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for _ in range(STEPS):
            loss = loss_of(net(x), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    return losses


def _convoy(
    system: System, net: nn.Module, x: torch.Tensor, targets: torch.Tensor, precision: str,
    row: Row,
) -> Step:  # fmt: skip
    """Convoy's step; the row gets what its schedule predicts."""
    from convoy.pytorch.training import compile_training_step

    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM)
    options = {"loss_scale": "dynamic", "precision": precision, **system.options}
    step = compile_training_step(net, loss_of, optimizer, x, targets, **options)
    if step.built.schedule is not None and step.built.plan is not None:
        total = step.built.schedule.total
        row |= {"predicted_ms": round(total.us / 1e3, 4), "kernels": total.kernels}
        row |= {"backends": step.built.plan.backends(), "streams": step.built.schedule.streams}
    return step


def _pytorch(system: System, net: nn.Module, device: str, precision: str) -> Step:
    """PyTorch's step under autocast."""
    dtype = getattr(torch, precision)
    optimizer = torch.optim.SGD(
        net.parameters(), RATE, momentum=MOMENTUM, fused=True if device == "cuda" else None
    )
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def loss(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            result = net(x)
        return loss_of(result, targets)

    compiled = loss if system.kind == "eager" else torch.compile(loss, mode=MODES[system.kind])

    def step(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        found = compiled(x, targets)
        scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        return found.detach()

    return step

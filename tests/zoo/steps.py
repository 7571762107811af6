"""Training steps to check: small networks and ResNet-50, built from the layers of
``convoy.training.Network`` or, for the reference, from those of descent.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy.training import LossModule, Network
from convoy.training.resnet import basic_blocks, bottlenecks

Array = np.ndarray[Any, Any]
STEPS, DAMPING = 4, 0.1


def wide_layers(net: Any) -> Any:
    """Dilation, groups, a bias behind no norm and a stride of 3, which residual networks lack."""
    x = net.relu(net.batch_norm(net.conv(net.x, 64, 7, 2, name="a"), name="an"))
    x = net.max_pool(x, 3, 2, 1)
    y = net.conv(x, 96, 3, 1, dilation=2, groups=2, name="b")
    z = net.conv(x, 96, 3, 1, padding=1, bias=True, name="c")
    x = net.relu(net.batch_norm(net.add(y, z), name="bn"))
    x = net.relu(net.conv(x, 40, 3, 3, padding=0, name="d"))
    return net.dense(net.mean(x), 10, name="classifier")


@dataclass(frozen=True)
class Case:
    """``logits`` builds the network from the layers of a Network or of the reference.

    Norms whose name ends in ``damped`` start with a gamma of DAMPING. From a random start the
    gradients of many layers are chaotic: those of ResNet-50 in float32 deviate by 2e-2 from
    float64, in float16 by 7e-1, which would hide a wrong kernel. Near the identity they are not.
    """

    logits: Callable[[Any], Any]
    picture: tuple[int, int, int]
    classes: int
    damped: str = ""


CASES = {
    "small": Case(lambda net: basic_blocks(net, (16, 32, 64), 10, True), (16, 16, 3), 10),
    "biases": Case(lambda net: basic_blocks(net, (16, 32), 10, False), (16, 16, 3), 10),
    "wide": Case(wide_layers, (63, 65, 3), 10),
    "resnet50": Case(lambda net: bottlenecks(net, 1000), (224, 224, 3), 1000, "_c_norm"),
}


def loss_module(case: Case, batch: int) -> LossModule:
    """The loss of a case, with damped norms."""
    net = Network(batch, *case.picture)
    made = net.finish(case.logits(net))
    ending = f"{case.damped}_gamma"
    initial = {
        name: value * np.float32(DAMPING) if case.damped and name.endswith(ending) else value
        for name, value in made.initial.items()
    }
    return dataclasses.replace(made, initial=initial)


def data(case: Case, batch: int) -> list[tuple[Array, Array]]:
    """Images (n, h, w, c) in float32 and labels (n,) in int32, of every step."""
    rng = np.random.default_rng(3)
    return [
        (
            rng.standard_normal((batch, *case.picture)).astype(np.float32),
            rng.integers(0, case.classes, batch).astype(np.int32),
        )
        for _ in range(STEPS)
    ]

"""Optimizers, as PyTorch has them; the learning rate is an input of the step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    rule: ClassVar[str] = "sgd"

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the tensors that are kept for each parameter."""
        return ("velocity",) if self.momentum else ()

    def attributes(self) -> dict[str, float]:
        """Arguments of the rule in ``convoy.ops.optimizer``."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Adam:
    """Adam; with ``decoupled`` weight decay AdamW."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    rule: ClassVar[str] = "adam"
    slots: ClassVar[tuple[str, ...]] = ("moment1", "moment2")

    def attributes(self) -> dict[str, float]:
        """Arguments of the rule in ``convoy.ops.optimizer``."""
        fields = dataclasses.asdict(self)
        beta1, beta2 = fields.pop("betas")
        return {**fields, "beta1": beta1, "beta2": beta2}


Optimizer = Sgd | Adam


@dataclass(frozen=True)
class Group:
    """Parameters with one optimizer, and which of the learning rates is theirs."""

    optimizer: Optimizer
    names: Sequence[str]
    rate: int = 0

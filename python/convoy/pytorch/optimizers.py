"""Optimizers of PyTorch: what the compiled update has of them, and their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import InvalidOption
from ..training import Adam, Group, Sgd

#: Settings that no compiled update has.
_REFUSED = ("dampening", "maximize", "amsgrad")

#: Names of an optimizer's state in PyTorch by those of the compiled update.
_STATE = {"velocity": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq"}


def trained_by(
    optimizer: torch.optim.Optimizer, module: torch.nn.Module
) -> dict[str, torch.nn.Parameter]:
    """Parameters of a module, by name, that an optimizer changes.

    Raises InvalidOption where there are none.
    """
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found = {n: p for n, p in module.named_parameters() if p.requires_grad and id(p) in held}
    if not found:
        raise InvalidOption("an optimizer of other parameters", "those of the module")
    return found


def groups_of(
    optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]
) -> list[Group]:
    """The optimizer's groups, with the names of ``trained`` and a learning rate each.

    Raises InvalidOption for another optimizer, or settings that the compiled update has not.
    """
    groups = []
    for i, group in enumerate(optimizer.param_groups):
        for key in _REFUSED:
            if group.get(key):
                raise InvalidOption(
                    f"{type(optimizer).__name__} with {key}={group[key]}", "without"
                )
        held = {id(p) for p in group["params"]}
        names = [name for name, p in trained.items() if id(p) in held]
        groups.append(Group(_optimizer(optimizer, group), names, i))
    return groups


def _optimizer(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Sgd | Adam:
    decay = float(group.get("weight_decay", 0))
    if type(optimizer) is torch.optim.SGD:
        return Sgd(float(group["momentum"]), decay, bool(group["nesterov"]))
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        beta1, beta2 = map(float, group["betas"])
        decoupled = bool(group["decoupled_weight_decay"])
        return Adam((beta1, beta2), float(group["eps"]), decay, decoupled)
    raise InvalidOption(
        f"the optimizer {type(optimizer).__name__}", "torch.optim.SGD, Adam or AdamW"
    )


def rates_of(optimizer: torch.optim.Optimizer) -> Any:
    """The learning rates as an input of the step: a number, or one for each group."""
    rates = torch.tensor([float(group["lr"]) for group in optimizer.param_groups])
    return rates if len(rates) > 1 else rates[0]


class OptimizerState:
    """What an optimizer keeps, in PyTorch and by the names of a step's state.

    Args:
        weights: Parameters by name in the step.
        slots: Names in the step of what is kept for each.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        weights: Mapping[str, torch.nn.Parameter],
        slots: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._optimizer, self._weights = optimizer, weights
        self._slots = {
            slot: (weights[name], _STATE[slot.removeprefix(f"{name}_")])
            for name, names in slots.items()
            for slot in names
        }

    def values(self, count: str) -> dict[str, torch.Tensor]:
        """What there is of it, with the number of updates as ``count``."""
        state = self._optimizer.state
        found = {slot: state.get(p, {}).get(key) for slot, (p, key) in self._slots.items()}
        counts = [state.get(p, {}).get("step") for p in self._weights.values()]
        kept = {slot: value for slot, value in found.items() if value is not None}
        known = [torch.as_tensor(value).float() for value in counts if value is not None]
        return kept | ({count: torch.stack(known).max()} if known else {})

    def store(self, value: Callable[[str], torch.Tensor], count: str) -> None:
        """Give the optimizer what it has kept after some steps, ``value`` by name."""
        for slot, (p, key) in self._slots.items():
            self._optimizer.state[p][key] = value(slot).to(p.device, copy=True)
            if key != _STATE["velocity"]:
                self._optimizer.state[p]["step"] = value(count).cpu().clone()

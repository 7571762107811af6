"""Names of a training step's inputs and state, from which a compiled step is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidOption
from ..ir.dtypes import numpy_dtype
from .optimizers import Group

LEARNING_RATE = "learning_rate"
COUNT, SCALE, FINITE, RANDOM = "update_count", "loss_scale", "finite_updates", "random_state"

#: State that is not a parameter's, in the first step. The loss scale is torch.amp.GradScaler's.
INITIAL: Mapping[str, float | Sequence[float]] = {
    COUNT: 0.0,
    SCALE: 65536.0,
    FINITE: 0.0,
    RANDOM: (0, 0),
}


@dataclass(frozen=True)
class StepNames:
    """Names of a training step's inputs and state, in the order of the parameters of its ``main``.

    The last ``len(state)`` results are the new state; ``trainable`` are the parameters among the
    state, and ``slots`` names for each of them the state of its optimizer.
    """

    inputs: tuple[str, ...]
    state: tuple[str, ...]
    trainable: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, names: Sequence[str], groups: Sequence[Group]) -> StepNames:
        """Split the names of all parameters of ``main``: the state follows the learning rate."""
        at = names.index(LEARNING_RATE) + 1
        slots = slot_names(groups)
        trainable = tuple(name for name in names[at:] if name in slots)
        return cls(tuple(names[:at]), tuple(names[at:]), trainable, slots)

    def initial_values(
        self, values: Mapping[str, np.ndarray], tensors: Iterable[tuple[str, Sequence[int], str]]
    ) -> list[np.ndarray]:
        """Return the state in order: ``values`` by name, initial ones for the optimizer's.

        Args:
            tensors: Name, shape and dtype of the inputs and the state.

        Raises:
            InvalidOption: A missing value, or a wrong shape.
        """
        types = {name: (tuple(shape), dtype) for name, shape, dtype in tensors}
        initial = {**INITIAL, **{slot: 0.0 for names in self.slots.values() for slot in names}}
        state = []
        for name in self.state:
            shape, dtype = types[name]
            if name not in values and name in initial:
                state.append(np.full(shape, initial[name], numpy_dtype(dtype)))
                continue
            if name not in values or tuple(values[name].shape) != shape:
                got = f"shape {tuple(values[name].shape)}" if name in values else "no value"
                raise InvalidOption(f"{got} for {name}", f"an array of shape {shape}")
            state.append(np.asarray(values[name], numpy_dtype(dtype), order="C"))
        return state


def slot_names(groups: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """Return the names of the optimizer's state by parameter."""
    return {
        name: tuple(f"{name}_{slot}" for slot in group.optimizer.slots)
        for group in groups
        for name in group.names
    }

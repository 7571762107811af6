"""Run a compiled training step; the state stays on the device between steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.compiled import CompiledModule
from .names import LEARNING_RATE, StepNames

if TYPE_CHECKING:
    import tvm

    from ..runtime.values import Value


class TrainingSession:
    """A compiled training step with its state, on one device.

    On a GPU the kernels update the state in place and a captured graph is replayed; where a new
    value comes as a tensor of its own it is copied behind the step.
    """

    def __init__(
        self,
        built: CompiledModule,
        step: StepNames,
        values: Mapping[str, np.ndarray],
        learning_rate: float | Sequence[float] = 0.1,
        device: tvm.runtime.Device | None = None,
    ) -> None:
        self.step_info = step
        self.session = built.session(device) if device is not None else built.session()
        state = step.initial_values(values, self.session.input_info)
        for name, value in zip(step.state, state, strict=True):
            self.session.set_input(name, value)
        self.learning_rate = learning_rate

    @property
    def learning_rate(self) -> float | Sequence[float]:
        """One number, or one for each rate of the step's groups."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float | Sequence[float]) -> None:
        self._learning_rate = value
        self.session.set_input(LEARNING_RATE, np.asarray(value, np.float32))

    def run(self) -> None:
        """Enqueue one step on the inputs that are set; returns before the device has finished."""
        self.session.run()
        first = self.session.num_outputs - len(self.step_info.state)
        for i, name in enumerate(self.step_info.state):
            kept, new = self.session.input(name), self.session.output(first + i)
            if not kept.same_as(new) and kept.data_ptr() != new.data_ptr():
                kept.copyfrom(new)

    def __call__(self, **inputs: Value) -> float:
        """Run one step on inputs by name and return the loss before the update."""
        for name, value in inputs.items():
            self.session.set_input(name, value)
        self.run()
        return float(self.session.output(0).numpy())

    def state(self) -> dict[str, np.ndarray]:
        """Parameters, the optimizer's state and moving statistics by name."""
        return {name: self.session.input(name).numpy() for name in self.step_info.state}

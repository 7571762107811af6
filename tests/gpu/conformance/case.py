"""One case of the list: a module, its inputs, what it computes in float64, and how near to that.

The list is what TVM 0.18 and 0.27 test of their CUTLASS and cuDNN integrations; sizes, dtypes and
tolerances are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """An input, or a parameter that is bound when building. ``low`` and ``high`` bound its random
    values; integers take their type's whole range."""

    shape: Shape
    dtype: str = "float16"
    bound: bool = False
    low: float = -1.0
    high: float = 1.0

    def random(self, rng: np.random.Generator) -> np.ndarray:
        if "int" in self.dtype:
            info = np.iinfo(self.dtype)
            values = rng.integers(info.min, info.max, self.shape, endpoint=True)
        else:
            values = rng.uniform(self.low, self.high, self.shape)
        return values.astype(self.dtype)

    def whole(self, rng: np.random.Generator) -> np.ndarray:
        """Values whose sums of products every dtype holds exactly."""
        return rng.integers(-1, 1, self.shape, endpoint=True).astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """``module`` builds a Relay module (or a Relax one); ``reference`` gets the inputs by name as
    float64 and returns the result.

    ``backend`` is the library that the original test is about. ``exact`` says that whole numbers
    have an exact result, so that they are compared without regard to rounding. ``rounded``: 16-bit
    values between the operators are rounded, so that the error is relative to the largest value.
    ``machine`` runs on the virtual machine, for sizes that are unknown when building. ``declined``
    is the reason why the library does not get the operator, where no backend is asked.
    """

    suite: str
    test: str
    name: str
    module: Callable[[], Any]
    inputs: Mapping[str, Tensor]
    reference: Callable[..., Any]
    tolerance: float
    backend: str
    exact: bool = False
    rounded: bool = False
    machine: bool = False
    precision: str | None = None
    declined: str = ""

    @property
    def id(self) -> str:
        return f"{self.suite}-{self.test}-{self.name}".replace(" ", "_")


@dataclass(frozen=True)
class NotCompiled:
    """A case of the list that is no program of Relay or Relax, and why it has no counterpart."""

    suite: str
    test: str
    name: str
    declined: str


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``ran_on`` names the kernels, ``error`` is the largest deviation
    over what the tolerance allows at that element."""

    suite: str
    test: str
    name: str
    tolerance: float
    error: float
    ran_on: str
    declined: str


def excess(got: np.ndarray, want: np.ndarray, tolerance: float, rounded: bool = False) -> float:
    """Largest |got - want| / (tolerance + tolerance * |want|); at most 1 passes, NaN does not.

    A 16-bit result may be one unit in the last place away: two orders of summation may round a
    sum to different neighbours.
    """
    assert got.shape == want.shape, f"{got.shape} for {want.shape}"
    units = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
    relative = max(tolerance, units.get(str(got.dtype), 0.0))
    size = np.abs(want)
    bound = tolerance + relative * (size.max(initial=0.0) if rounded else size)
    return float(np.max(np.abs(got.astype("float64") - want) / bound, initial=0.0))

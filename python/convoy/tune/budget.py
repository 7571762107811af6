"""Limits of a tuning run."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidOption


@dataclass(frozen=True)
class Budget:
    """Limits of a tuning run; None is no limit.

    Attributes:
        trials: Candidates of each workload, those with recorded measurements included.
        seconds: Of the whole run.
        measurements: Of the whole run.
        patience: Candidates of a workload without an improvement of 1%.
        batch: Candidates of each workload in a round; the search learns between rounds.

    Raises:
        InvalidOption: A limit that is not positive.
    """

    trials: int | None = 16
    seconds: float | None = None
    measurements: int | None = None
    patience: int | None = None
    batch: int = 4

    def __post_init__(self) -> None:
        for name in ("trials", "seconds", "measurements", "patience", "batch"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidOption(f"{name} = {value}", "a positive number")

    def exhausted(self, seconds: float, measurements: int) -> str:
        """Return the reason to stop a run with this duration and number of measurements; empty to
        continue."""
        if self.seconds is not None and seconds > self.seconds:
            return f"{self.seconds:g} seconds are over"
        if self.measurements is not None and measurements >= self.measurements:
            return f"{self.measurements} measurements are done"
        return ""


DEFAULT_BUDGET = Budget()

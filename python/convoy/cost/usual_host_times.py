"""Usual host times of a kind of kernels: medians of many records.

Host times are the noisiest measurements, with errors of up to a third if the machine was busy, and
depend little on the problem: on an idle host, kernels of one kind (a cuDNN engine, a CUTLASS
family) differ by less than a tenth. The minimum would be biased.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from ..ir.measurement import Measurement
from ..records.record import HostSample, Record

#: Of fewer records of a kind each keeps its own host times.
FEWEST = 8


class Kind(NamedTuple):
    """Kernels of one family or engine, as many launches each, measured on one host since it was
    booted."""

    backend: str
    family: str
    host: str
    boot: str

    @classmethod
    def of(cls, record: Record) -> Kind:
        candidate, environment = record.candidate, record.environment
        family = _family(candidate.kernel, candidate.workspace)
        return cls(candidate.backend, family, environment.host, environment.boot)


def _family(kernel: str, workspace: int) -> str:
    return kernel.split("_", 1)[0] + "+" * ("split" in kernel) + "w" * (workspace > 0)


class Usual(NamedTuple):
    """Host times in microseconds; ``wait_us`` is the synchronized call without the kernel."""

    enqueue_us: float
    enqueue_spread_us: float
    wait_us: float
    wait_spread_us: float

    def apply(self, measurement: Measurement) -> Measurement:
        """A measurement with these host times, as far as it has any."""
        changes: dict[str, float] = {}
        if measurement.enqueue_us is not None:
            changes["enqueue_us"] = self.enqueue_us
            changes["enqueue_spread_us"] = self.enqueue_spread_us
        if measurement.e2e_us is not None and measurement.kernel_us is not None:
            changes["e2e_us"] = measurement.kernel_us + self.wait_us
            changes["e2e_spread_us"] = self.wait_spread_us
        return dataclasses.replace(measurement, **changes)  # type: ignore[arg-type]


def usual_times(samples: Iterable[HostSample]) -> dict[Kind, Usual]:
    """Medians by kind, of FEWEST samples and more."""
    found: dict[Kind, list[tuple[float, float, float, float]]] = {}
    for s in samples:
        own = Kind(s.backend, _family(s.kernel, s.workspace), s.host, s.boot)
        times = s.enqueue_us, s.enqueue_spread_us, s.wait_us, s.e2e_spread_us
        found.setdefault(own, []).append(times)
    return {
        own: Usual(*map(statistics.median, zip(*times, strict=True)))
        for own, times in found.items()
        if len(times) >= FEWEST
    }

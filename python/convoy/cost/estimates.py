"""Estimates of candidates: by the kernel's own model, or from similar workloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from .native import native_measurement

#: The estimates of a cost model (:meth:`CostModel.estimates`).
Estimates = Callable[[Workload, Sequence[Candidate]], Sequence[Measurement | None]]
#: How far a kernel's own model may be off, as the spread of its estimate.
_MODEL_SPREAD = 0.15


def estimated(
    workload: Workload,
    candidates: Sequence[Candidate],
    backends: Mapping[str, Backend],
    device: Device,
    similar: Estimates,
) -> list[Measurement | None]:
    """Estimate candidates of one workload: by the backend's model of the kernel
    (:meth:`Backend.estimate_us`) or, if it has none, as ``similar`` does."""
    found = []
    for candidate, estimate in zip(candidates, similar(workload, candidates), strict=True):
        us = backends[candidate.backend].estimate_us(workload, candidate, device)
        found.append(estimate if us is None else _modelled(us))
    return found


def scaled(estimate: Measurement, factor: float) -> Measurement:
    """The estimate of a kernel that takes ``factor`` times as long."""
    us = estimate.kernel_us or 0.0
    longer = (factor - 1.0) * us
    return dataclasses.replace(
        estimate,
        kernel_us=us + longer,
        kernel_spread_us=factor * (estimate.kernel_spread_us or 0.0),
        cold_us=None if estimate.cold_us is None else factor * estimate.cold_us,
        e2e_us=None if estimate.e2e_us is None else estimate.e2e_us + longer,
    )


def _modelled(kernel_us: float) -> Measurement:
    """The estimate for a kernel that takes so long by its own model."""
    host = native_measurement(kernel_us)
    return dataclasses.replace(host, kernel_spread_us=_MODEL_SPREAD * kernel_us)

"""Estimates of candidates: by the kernel's own model, or from similar workloads."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence

from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import device_us
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from .native import of_duration

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


def estimate_unmeasured(
    operations: Sequence[Collection[Workload]],
    offers: Mapping[Workload, Offers],
    backends: Mapping[str, Backend],
    device: Device,
    similar: Estimates,
) -> None:
    """Estimate the candidates of workloads of which nothing is measured, scaled by the error of the
    estimates for measured alternatives of the operation.

    Args:
        operations: The workloads that are alternatives for each operation.
        offers: The offers of all of them; estimated candidates become measured ones.
        backends, device, similar: As for :func:`estimated`.
    """
    for operation in operations:
        alternatives = [offers[workload] for workload in dict.fromkeys(operation)]
        measured = [own for own in alternatives if _is_measured(own)]
        factors = []
        for own in measured:
            best = min(own.measured, key=lambda offer: device_us(offer.measurement))
            (estimate,) = estimated(own.workload, [best.candidate], backends, device, similar)
            if estimate is not None:
                factors.append(device_us(best.measurement) / device_us(estimate))
        factor = statistics.geometric_mean(factors) if factors else 1.0
        for own in alternatives:
            if own in measured:
                continue
            candidates, own.unmeasured[:] = list(own.unmeasured), []
            found = estimated(own.workload, candidates, backends, device, similar)
            for candidate, estimate in zip(candidates, found, strict=True):
                if estimate is None:
                    own.unmeasured.append(candidate)
                else:
                    own.measured.append(Offer(candidate, _scaled(estimate, factor)))


def _is_measured(offers: Offers) -> bool:
    return any(not offer.measurement.estimated for offer in offers.measured)


def _scaled(estimate: Measurement, factor: float) -> Measurement:
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
    found = of_duration(kernel_us)
    return dataclasses.replace(found, kernel_spread_us=_MODEL_SPREAD * kernel_us)

"""Times of kernels as links of a chain: as measured, otherwise estimated.

A kernel that is launched programmatically starts, and loads its weights, while its predecessor is
running, provided that this one lets it (docs/design/sm90-kernels.md). Over the shipped records of
an H200, kernels of less than 6 us take 1.07 us less in a chain of their kind (median; a tenth saves
less than 0.6 us, a tenth more than 1.3), and those below 4 us 0.68 of the time. Estimates are that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload

#: What a link is estimated to save, in microseconds, and the least share of the time that is left.
SAVED_US, SHARE = 1.0, 0.7


def estimate_us(kernel_us: float) -> float:
    """Estimate the time of a link from that of a launch behind the end of its predecessor."""
    return max(kernel_us - SAVED_US, SHARE * kernel_us)


def as_links(
    offers: Mapping[Workload, Offers], backends: Mapping[str, Backend], device: Device
) -> dict[Workload, Offers]:
    """Offers with ``chained_us`` for the candidates that are launched programmatically, and for no
    other ones."""
    return {
        workload: dataclasses.replace(
            found,
            measured=[
                Offer(
                    offer.candidate, as_link(offer.candidate, offer.measurement, backends, device)
                )
                for offer in found.measured
            ],
        )
        for workload, found in offers.items()
    }


def as_link(
    candidate: Candidate,
    measurement: Measurement,
    backends: Mapping[str, Backend],
    device: Device,
) -> Measurement:
    """Return the measurement with ``chained_us``, estimated where it was not measured, if the
    candidate is launched programmatically; without it otherwise."""
    chained_us = None
    if backends[candidate.backend].is_programmatic(candidate, device):
        chained_us = measurement.chained_us
        if chained_us is None and measurement.kernel_us is not None:
            chained_us = estimate_us(measurement.kernel_us)
    if chained_us == measurement.chained_us:
        return measurement
    return dataclasses.replace(measurement, chained_us=chained_us)

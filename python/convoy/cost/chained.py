"""Times of kernels as links of a chain: as measured, otherwise estimated.

A kernel that is launched programmatically starts, and loads its weights, while its predecessor is
running, provided that this one lets it (docs/design/sm90-kernels.md). Eight layers of ResNet-50 at
N=1 on an H200 took 1.01 to 1.67 us less in a chain of their kind, which is 0.70 to 0.81 of the time
of a launch that starts when its predecessor has ended. An estimate assumes the least saving.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..backends.base import Backend
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload

#: The least that a link was faster, in microseconds, and the largest share of the time that was
#: left.
SAVED_US, SHARE = 1.0, 0.81


def estimate_us(kernel_us: float) -> float:
    """Estimate the time of a link from that of a launch behind the end of its predecessor."""
    return max(kernel_us - SAVED_US, SHARE * kernel_us)


def as_links(
    offers: Mapping[Workload, Offers], backends: Mapping[str, Backend]
) -> dict[Workload, Offers]:
    """Offers with ``chained_us`` for the candidates that are launched programmatically, and for no
    other ones."""

    def of(offer: Offer) -> Offer:
        measurement, chained = offer.measurement, None
        if backends[offer.candidate.backend].is_programmatic(offer.candidate):
            chained = chained_us(measurement)
        if chained == measurement.chained_us:
            return offer
        return Offer(offer.candidate, dataclasses.replace(measurement, chained_us=chained))

    return {
        workload: dataclasses.replace(found, measured=[of(offer) for offer in found.measured])
        for workload, found in offers.items()
    }


def chained_us(measurement: Measurement) -> float | None:
    """Time of a kernel as a link, estimated if it was not measured; None without any time."""
    if measurement.chained_us is not None or measurement.kernel_us is None:
        return measurement.chained_us
    return estimate_us(measurement.kernel_us)

"""Times of kernels as links of a chain: as measured, otherwise estimated.

Records and timers have times in a chain of a kernel's own kind; offers, plans and schedules have
those in a network's chain, which are computed here alone.

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
#: Share of what a kernel saves in a chain of its own kind that it saves behind other kernels. Plans
#: made with 1 had these shares at N=1 on an H200: GoogLeNet 0.2, Inception-v3 0.6, SqueezeNet 0.7,
#: ResNet-50 1.
KEPT = 0.5


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
    """Time of a kernel as a link of a network's chain, from its time in a chain of its own kind, or
    an estimate of it; None without any time."""
    alone, link = measurement.kernel_us, measurement.chained_us
    if alone is None:
        return link
    return alone - KEPT * (alone - (estimate_us(alone) if link is None else link))


def from_own_chain(link_us: float, saved_us: float) -> tuple[float, float]:
    """Times alone and as a link of a network's chain of a kernel that takes ``link_us`` in a chain
    of its own kind; ``saved_us`` is what it is estimated to save in the network."""
    alone = link_us + saved_us / KEPT
    return alone, alone - saved_us

"""Adjust measurements to the conditions inside a network.

Kernels are measured in isolation: once with all their operands in the L2 cache (``kernel_us``),
once with the cache flushed before every launch (``cold_us``). Inside a network a kernel runs under
conditions between the two. If the network's data fit into the cache, they stay in it from one run
to the next and its kernels take ``kernel_us``. Otherwise :func:`convoy.ir.objective.device_us` adds
a fraction of the difference to ``cold_us``, which :func:`in_network` makes smaller where a kernel
reads more of its predecessors' results than of weights. This is the only model of the cache: the
measurements of a plan have passed through :func:`in_network`, so that placement and scheduling both
obtain a kernel's time in its network from ``device_us``.

Host times also depend on previous launches: a library with a long launch path takes longer if
kernels of other backends were launched in between (``Backend.after_others_us``).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping

from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import COLD_SHARE
from ..ir.offer import Offer, Offers
from ..ir.operands import operand_bytes, weight_bytes
from ..ir.workload import Workload

#: Share of the L2 cache that a network's data may take, as counted here, to stay in it. Half of an
#: H200's keeps a second copy of what both halves read, and more than one step's tensors are alive:
#: GoogLeNet at N=1 (16 MB of 63) runs as with a warm cache, DenseNet-121 at N=8 (23 MB) does not.
STAYING = 1 / 3

#: Shares of the difference between cold and warm that a network adds to kernels that read no
#: weights, and to those that read nothing else. ResNet-50 at N=8 on an H200: 0.0 on average of the
#: layers up to 28x28, 0.7 to 1.0 of those at 14x14 and 7x7.
NO_WEIGHTS, ONLY_WEIGHTS = 0.1, 0.7

#: How much longer a depthwise convolution, alone or behind a 1x1, takes than in a chain of its own
#: kind: filters are unrolled, and their code (46 KB of a 1x1 with a 3x3) comes from the L2 cache
#: behind other kernels. In mobile networks at N=1 on an H200 136 of the one took 0.66 us more on
#: average (1.34 where the kernel ran for the first time, 0.29 after) and 77 of the other 0.76;
#: 341 of ``small_conv`` 0.01.
DEPTHWISE_US = 0.7


def touched_bytes(workloads: Iterable[Workload]) -> int:
    """Estimate the bytes that one run of these workloads touches: all weights, and of the tensors
    between them, whose storage is reused, the largest step."""
    weights, largest = 0, 0
    for workload in workloads:
        filters = weight_bytes(workload)
        weights += filters
        largest = max(largest, operand_bytes(workload) - filters)
    return weights + largest


def stays(touched: int, device: Device) -> bool:
    """Return whether data of this many bytes stay in the L2 cache from one run of a network to the
    next."""
    return touched <= STAYING * device.l2_bytes


def in_network(
    offers: Mapping[Workload, Offers],
    staying: bool = False,
    after_others_us: Mapping[str, tuple[float, float]] | None = None,
) -> dict[Workload, Offers]:
    """Offers with the measurements that apply in a network.

    If its data stay in the cache (``staying``, see :func:`stays`), ``cold_us`` becomes
    ``kernel_us``. Otherwise a candidate without ``cold_us`` gets the median difference between cold
    and warm cache of the other candidates of its workload or, if none of them has it, of all
    workloads; and the difference is scaled by the share of weights in what the kernel reads.
    """
    added = {w: [_added_us(o.measurement) for o in found.measured] for w, found in offers.items()}
    known = {w: [us for us in each if us is not None] for w, each in added.items()}
    every = [us for each in known.values() for us in each]
    usual = statistics.median(every) if every else None

    def of(workload: Workload, offer: Offer) -> Offer:
        host_us = (after_others_us or {}).get(offer.candidate.backend, (0.0, 0.0))
        measurement = _after_others(offer.measurement, *host_us)
        if workload.is_depthwise:
            measurement = _longer(measurement, DEPTHWISE_US)
        if staying:
            measurement = dataclasses.replace(measurement, cold_us=measurement.kernel_us)
        elif measurement.kernel_us is not None:
            own = _added_us(measurement)
            if own is None:
                own = statistics.median(known[workload]) if known[workload] else usual
            if own is not None:
                cold = measurement.kernel_us + own * _cold_part(workload)
                measurement = dataclasses.replace(measurement, cold_us=cold)
        return Offer(offer.candidate, measurement)

    return {
        workload: dataclasses.replace(found, measured=[of(workload, o) for o in found.measured])
        for workload, found in offers.items()
    }


def _cold_part(workload: Workload) -> float:
    """The part of the difference between cold and warm that is left for ``device_us``."""
    weights = weight_bytes(workload) / operand_bytes(workload)
    return (NO_WEIGHTS + (ONLY_WEIGHTS - NO_WEIGHTS) * weights) / COLD_SHARE


def _after_others(measurement: Measurement, enqueue: float, call: float) -> Measurement:
    """The measurement with longer host times, where it has any."""
    if measurement.enqueue_us is not None:
        measurement = dataclasses.replace(measurement, enqueue_us=measurement.enqueue_us + enqueue)
    if measurement.e2e_us is not None:
        measurement = dataclasses.replace(measurement, e2e_us=measurement.e2e_us + call)
    return measurement


def _longer(measurement: Measurement, us: float) -> Measurement:
    """The measurement with longer times on the device, where it has any."""
    times = ("kernel_us", "cold_us", "chained_us")
    known = {name: getattr(measurement, name) for name in times}
    longer = {name: value + us for name, value in known.items() if value is not None}
    return dataclasses.replace(measurement, **longer)


def _added_us(measurement: Measurement) -> float | None:
    """Additional time of a kernel with a cold cache."""
    if measurement.kernel_us is None or measurement.cold_us is None:
        return None
    return max(0.0, measurement.cold_us - measurement.kernel_us)

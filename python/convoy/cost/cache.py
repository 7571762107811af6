"""What caches make of figures that belong to a network.

Kernels are measured alone, with all that they read in the cache (``kernel_us``) and with nothing in
it (``cold_us``); inside a network the truth lies between (objective.py). Two things about that are
known of a network and not of a kernel. One that touches little finds all of it in the cache again,
also from one run to the next: its kernels are as quick as alone. And where some candidates lack
``cold_us`` (records that were taken without), they would look quicker than those that have it.

The processor has caches too: a library that does much for a launch takes longer for it where other
launches came before (``Backend.after_others_us``).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping

from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.plan import Scored
from ..ir.workload import DTYPE_BYTES, Workload
from ..placement.place import Options

#: Share of the L2 cache that a network's data may take, as counted here, to stay in it. Half of an
#: H200's keeps a second copy of what both halves read, and more than one step's tensors are alive:
#: GoogLeNet at N=1 (16 MB of 63) runs as with a warm cache, DenseNet-121 at N=8 (23 MB) does not.
STAYING = 1 / 3


def touched_bytes(workloads: Iterable[Workload]) -> int:
    """About how many bytes one run of these convolutions and products touches: all weights, and
    of the tensors between them, whose storage is used over and over, the largest step."""
    weights, largest = 0, 0
    for workload in workloads:
        sizes = {
            name: math.prod(shape) * DTYPE_BYTES[dtype]
            for name, shape, dtype in workload.operand_shapes()
        }
        own = sizes.get("w", 0) + sizes.get("dw", 0)
        weights += own
        largest = max(largest, sum(sizes.values()) - own)
    return weights + largest


def stays(workloads: Iterable[Workload], device: Device) -> bool:
    """Whether what a network touches stays in the L2 cache from one run to the next."""
    return touched_bytes(workloads) <= STAYING * device.l2_bytes


def in_network(
    options: Mapping[Workload, Options],
    staying: bool = False,
    after_others_us: Mapping[str, tuple[float, float]] | None = None,
) -> dict[Workload, Options]:
    """Options with figures as they count in a network: host times with what backends of these
    names take longer ``after_others_us``, and ``cold_us`` as follows.

    Where data are ``staying`` it is ``kernel_us``. Elsewhere a candidate without it gets what the
    other candidates of its workload take longer with a cold cache (the median), or, where none of
    them has it, those of all workloads. Without any to go by, figures stay as they are.
    """
    longer = {w: [_longer(s.measurement) for s in o.scored] for w, o in options.items()}
    known = {w: [us for us in each if us is not None] for w, each in longer.items()}
    every = [us for each in known.values() for us in each]
    usual = statistics.median(every) if every else None

    def of(workload: Workload, scored: Scored) -> Scored:
        later = (after_others_us or {}).get(scored.candidate.backend, (0.0, 0.0))
        scored = Scored(scored.candidate, _later(scored.measurement, *later))
        figure = scored.measurement
        if figure.kernel_us is None:
            return scored
        if staying:
            cold: float | None = figure.kernel_us
        elif figure.cold_us is None:
            own = statistics.median(known[workload]) if known[workload] else usual
            cold = None if own is None else figure.kernel_us + own
        else:
            return scored
        return Scored(scored.candidate, dataclasses.replace(figure, cold_us=cold))

    return {
        workload: dataclasses.replace(found, scored=[of(workload, s) for s in found.scored])
        for workload, found in options.items()
    }


def _later(figure: Measurement, enqueue: float, call: float) -> Measurement:
    """The figure with longer host times, where it has any."""
    if figure.enqueue_us is not None:
        figure = dataclasses.replace(figure, enqueue_us=figure.enqueue_us + enqueue)
    if figure.e2e_us is not None:
        figure = dataclasses.replace(figure, e2e_us=figure.e2e_us + call)
    return figure


def _longer(figure: Measurement) -> float | None:
    """What a kernel takes longer with a cold cache."""
    if figure.kernel_us is None or figure.cold_us is None:
        return None
    return max(0.0, figure.cold_us - figure.kernel_us)

"""What a placement minimises: one formula for each way a module can be run.

=========  ==========================================================================
objective  cost of a sequence of launches
=========  ==========================================================================
graph      sum of kernel_us (measured inside a CUDA graph, so the gap between two nodes
           is already part of it): the module is replayed as one CUDA graph
stream     max(sum of enqueue_us, sum of kernel_us): launches run asynchronously, host
           and device overlap, and the slower of the two is what one waits for
sync       sum of e2e_us: every call is followed by a synchronisation
=========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ..errors import InvalidOption
from ..measure.measurement import Measurement

Objective = Literal["graph", "stream", "sync"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


def check(objective: str) -> str:
    """The objective itself; raises InvalidOption where there is none of that name."""
    if objective not in OBJECTIVES:
        raise InvalidOption(f"objective {objective!r}", f"one of {', '.join(OBJECTIVES)}")
    return objective


def own_cost(measurement: Measurement, objective: str) -> tuple[float, float]:
    """(cost, spread) in microseconds of one launch by itself under an objective.

    For ``stream`` this is the larger of host and device time, which is what a single launch
    costs; :func:`total` sums the two sides apart.
    """
    kernel = (measurement.kernel_us or 0.0, measurement.kernel_spread_us or 0.0)
    if objective == "graph":
        return kernel
    if objective == "sync":
        if measurement.e2e_us is None:
            return kernel
        return measurement.e2e_us, measurement.e2e_spread_us or 0.0
    enqueue = (measurement.enqueue_us or 0.0, measurement.enqueue_spread_us or 0.0)
    return max(kernel, enqueue)


def total(measurements: Sequence[Measurement], objective: str) -> float:
    """Cost in microseconds of launching all of them one after another."""
    if objective == "stream":
        kernel = sum(m.kernel_us or 0.0 for m in measurements)
        return max(kernel, sum(m.enqueue_us or 0.0 for m in measurements))
    return sum(own_cost(m, objective)[0] for m in measurements)

"""What a placement minimises: one formula for each way a module can be run.

=========  ==========================================================================
objective  cost of a sequence of launches
=========  ==========================================================================
graph      sum of kernel_us (measured inside a CUDA graph, so the gap between two nodes
           is already part of it): the module is replayed as one CUDA graph
stream     max(sum of enqueue_us, sum of (kernel_us + STREAM_GAP_US)): launches run
           asynchronously, host and device overlap, and the slower of the two is what one
           waits for; outside of a graph the next kernel starts a little later
sync       sum of e2e_us: every call is followed by a synchronisation
=========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ..errors import InvalidOption
from ..measure.measurement import Measurement

# What the device waits between two launches of a stream, beyond the gap between two nodes of a
# graph, in microseconds: 0.75 to 1.13 over GoogLeNet and Inception v3 at N=1 and 8 on an H200.
STREAM_GAP_US = 1.0

Objective = Literal["graph", "stream", "sync"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


def check(objective: str) -> str:
    """The objective itself; raises InvalidOption where there is none of that name."""
    if objective not in OBJECTIVES:
        raise InvalidOption(f"objective {objective!r}", f"one of {', '.join(OBJECTIVES)}")
    return objective


def stream_sides(measurement: Measurement) -> tuple[float, float]:
    """(device, host) in microseconds of one asynchronous launch; what takes no time is none."""
    kernel = measurement.kernel_us or 0.0
    return kernel + STREAM_GAP_US if kernel else 0.0, measurement.enqueue_us or 0.0


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
    device, host = stream_sides(measurement)
    return max((device, kernel[1]), (host, measurement.enqueue_spread_us or 0.0))


def total(measurements: Sequence[Measurement], objective: str) -> float:
    """Cost in microseconds of launching all of them one after another."""
    if objective == "stream":
        sides = [stream_sides(m) for m in measurements]
        return max(sum(device for device, _ in sides), sum(host for _, host in sides))
    return sum(own_cost(m, objective)[0] for m in measurements)

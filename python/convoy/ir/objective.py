"""Objectives of placement: a formula for each way to run a module.

=========  ==========================================================================
objective  cost of a sequence of launches
=========  ==========================================================================
graph      sum of device_us (measured inside a CUDA graph, so the gap between two nodes
           is already part of it): the module is replayed as one CUDA graph
stream     max(sum of enqueue_us, sum of (device_us + STREAM_GAP_US)): launches run
           asynchronously, host and device overlap, and the slower of the two is what one
           waits for; outside of a graph the next kernel starts a little later
sync       sum of e2e_us, each with what device_us has beyond kernel_us: every call is
           followed by a synchronization
=========  ==========================================================================

device_us is kernel_us, with all that the kernel reads in the L2 cache because the same launch went
before, and a share of what cold_us is longer, with nothing in the cache. Inside a network the
result of the kernel before is there and the weights, mostly, are not. Under ``graph``, a link of a
chain (launched programmatically behind a kernel that lets it start early) takes chained_us.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ..errors import InvalidOption
from .measurement import Measurement

# What the device waits between two launches of a stream, beyond the gap between two nodes of a
# graph, in microseconds: 0.75 to 1.13 over GoogLeNet and Inception v3 at N=1 and 8 on an H200.
STREAM_GAP_US = 1.0

# How far a kernel inside a network is from a warm cache towards a cold one, where the network
# touches more than stays in the cache (cost/l2_cache.py). Fitted to 55 plans for ResNet-50,
# ResNeXt-50, GoogLeNet, Inception v3 and DenseNet-121 at N=1 and 8 as CUDA graphs on an H200, TVM's
# kernels as measured: the mean error of the sums is 2.4%. It matters for the choice: without it
# sums of cuDNN's kernels were up to 9% short where those of CUTLASS's were 2% to 7%.
COLD_SHARE = 0.55

Objective = Literal["graph", "stream", "sync"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)


def check(objective: str) -> str:
    """Return the objective; raise InvalidOption for an unknown name."""
    if objective not in OBJECTIVES:
        raise InvalidOption(f"objective {objective!r}", f"one of {', '.join(OBJECTIVES)}")
    return objective


def device_us(measurement: Measurement) -> float:
    """Time of a kernel inside a network, in microseconds; kernel_us where cold_us is not known."""
    return (measurement.kernel_us or 0.0) + _beyond_warm(measurement)


def starts_successor_early(measurement: Measurement) -> bool:
    """Return whether a kernel lets its successor start before it has ended. Exactly the kernels
    with a time as a link do."""
    return measurement.chained_us is not None


def saved_us(measurement: Measurement) -> float:
    """Time by which a kernel ends sooner, in microseconds, if its predecessor lets it start early;
    0 for one that is not launched programmatically.

    A link takes as long as in a chain of its own kind, whose weights are in the L2 cache: it reads
    its weights while its predecessor runs. Links of ResNet-50 on an H200, us alone, in such chains,
    in the network: N=1 (35 of them) 152.1, 116.0, 116.5; N=8 (three) 25.7, 23.7, 21.1.
    """
    if measurement.kernel_us is None or measurement.chained_us is None:
        return 0.0
    return max(0.0, device_us(measurement) - measurement.chained_us)


def best_case_us(measurement: Measurement) -> float:
    """Time of a kernel inside a network whose other kernels let it be a link if it can be one."""
    return device_us(measurement) - saved_us(measurement)


def _beyond_warm(measurement: Measurement) -> float:
    if measurement.kernel_us is None or measurement.cold_us is None:
        return 0.0
    return COLD_SHARE * max(0.0, measurement.cold_us - measurement.kernel_us)


def stream_sides(measurement: Measurement) -> tuple[float, float]:
    """(device, host) times of an asynchronous launch in microseconds; a call without either is not
    a launch."""
    device = device_us(measurement)
    return device + STREAM_GAP_US if device else 0.0, measurement.enqueue_us or 0.0


def own_cost(measurement: Measurement, objective: str, linked: bool = False) -> tuple[float, float]:
    """(cost, spread) of a single launch under an objective, in microseconds; ``linked`` if its
    predecessor lets it start early.

    For ``stream`` this is the larger of host and device time; :func:`total` sums the two
    separately.
    """
    kernel = (device_us(measurement), measurement.kernel_spread_us or 0.0)
    if objective == "graph":
        return (kernel[0] - saved_us(measurement) if linked else kernel[0]), kernel[1]
    if objective == "sync":
        if measurement.e2e_us is None:
            return kernel
        return measurement.e2e_us + _beyond_warm(measurement), measurement.e2e_spread_us or 0.0
    device, host = stream_sides(measurement)
    return max((device, kernel[1]), (host, measurement.enqueue_spread_us or 0.0))


def total(
    measurements: Sequence[Measurement], objective: str, linked: Sequence[bool] = ()
) -> float:
    """Cost in microseconds of launching all of them one after another. ``linked`` tells for each
    whether its predecessor lets it start early (default: for none)."""
    if objective == "stream":
        sides = [stream_sides(m) for m in measurements]
        return max(sum(device for device, _ in sides), sum(host for _, host in sides))
    links = linked or [False] * len(measurements)
    return sum(own_cost(m, objective, link)[0] for m, link in zip(measurements, links, strict=True))

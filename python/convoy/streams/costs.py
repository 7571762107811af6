"""Cost of launches and of crossing from one stream to another, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchCosts:
    """Costs of streams and events in microseconds, as measured on an H200.

    ``cross_us`` is the additional cost of an edge between two streams, ``fork_us`` that of a branch
    that starts with the function. ``enqueue_us`` is the host time of an op and ``event_us`` that of
    recording or waiting for an event: 0 in a replayed graph.
    """

    cross_us: float = 2.0
    fork_us: float = 1.5
    enqueue_us: float = 0.0
    event_us: float = 0.0


#: The whole function is replayed as one CUDA graph.
GRAPH = LaunchCosts()
#: The host launches every op and event itself.
EAGER = LaunchCosts(enqueue_us=3.0, event_us=1.0)

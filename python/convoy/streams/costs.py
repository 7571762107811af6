"""Cost of launches and of crossing from one stream to another, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchCosts:
    """Costs of streams and events in microseconds, as measured on an H200.

    ``start_us`` passes before the first kernel runs. ``cross_us`` is the additional cost of each
    edge from another stream, ``fork_us`` that of a branch that starts with the function;
    ``early_events`` tells whether kernels that start early do so behind events too: in a captured
    graph their edges are programmatic. ``enqueue_us`` is the host time of an op and ``event_us``
    that of recording or waiting for an event: 0 in a replayed graph.
    """

    start_us: float = 0.0
    cross_us: float = 0.5
    fork_us: float = 1.5
    early_events: bool = True
    enqueue_us: float = 0.0
    event_us: float = 0.0


#: The kernels of a function that is replayed as one CUDA graph.
GRAPH = LaunchCosts()
#: The same from the launch of the replay: its first kernel ends 4 to 5 us later than its own time.
REPLAY = LaunchCosts(start_us=4.5)
#: The host launches every op and event itself.
EAGER = LaunchCosts(cross_us=2.0, early_events=False, enqueue_us=3.0, event_us=1.0)

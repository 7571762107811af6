"""Predicting when each op of a schedule runs.

Ops that run at the same time share the device. Each asks for the share of the SMs that its
blocks occupy, at most all of it; while the shares sum to more than one, everybody slows
down in proportion. This is processor sharing; the hardware hands out blocks in order of arrival
instead, which gives the same end of a group of ops though not the same end of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.schedule import ORIGIN, Event, Op
from .costs import GRAPH, LaunchCosts

_LEAST_SHARE = 0.02  # a launch of few blocks still takes scheduling and bandwidth from the rest


def simulate(
    ops: Sequence[Op], events: Sequence[Event], costs: LaunchCosts = GRAPH
) -> tuple[list[float], list[float], float]:
    """Start and end of each op, and the makespan, in microseconds from the fork. ``ops`` are in
    launch order; ``stream``, ``duration_us`` and ``occupancy`` of each are read."""
    waits: list[list[int]] = [[] for _ in ops]
    joined: list[int] = []
    for event in events:
        (joined if event.wait == ORIGIN else waits[event.wait]).append(event.record)
    records = {event.record for event in events}
    issued = _issue_times(ops, waits, records, costs)
    previous: list[int | None] = []
    last: dict[int, int] = {}
    for i, op in enumerate(ops):
        previous.append(last.get(op.stream))
        last[op.stream] = i
    behind: list[list[int]] = [[] for _ in ops]
    missing = [0] * len(ops)
    for i, waited in enumerate(waits):
        sources = {w for w in waited if w != ORIGIN}
        if previous[i] is not None:
            sources.add(previous[i])  # type: ignore[arg-type]
        missing[i] = len(sources)
        for source in sources:
            behind[source].append(i)
    ready_at = [
        max(issued[i], costs.fork_us if ORIGIN in waits[i] else 0.0) for i in range(len(ops))
    ]
    shares = [min(1.0, max(_LEAST_SHARE, op.occupancy.waves)) for op in ops]
    start, end = [0.0] * len(ops), [0.0] * len(ops)
    left = [op.duration_us for op in ops]
    waiting = {i for i in range(len(ops)) if not missing[i]}
    running: set[int] = set()
    now = 0.0
    while waiting or running:
        begun = [i for i in waiting if ready_at[i] <= now]
        for i in begun:
            start[i] = now
        waiting.difference_update(begun)
        running.update(begun)
        slow = max(1.0, sum(shares[i] for i in running))
        step = min((left[i] * slow for i in running), default=float("inf"))
        arrival = min((ready_at[i] for i in waiting), default=float("inf"))
        step = min(step, arrival - now)
        now += step
        over = []
        for i in running:
            left[i] -= step / slow
            if left[i] <= 1e-9:
                over.append(i)
        for i in over:
            running.discard(i)
            end[i] = now
            for follower in behind[i]:
                crossing = costs.cross_us if ops[follower].stream != ops[i].stream else 0.0
                ready_at[follower] = max(ready_at[follower], now + crossing)
                missing[follower] -= 1
                if not missing[follower]:
                    waiting.add(follower)
    makespan = max(end, default=0.0)
    for op_index in joined:
        makespan = max(makespan, end[op_index] + costs.cross_us)
    return start, end, makespan


def _issue_times(
    ops: Sequence[Op], waits: Sequence[Sequence[int]], records: set[int], costs: LaunchCosts
) -> list[float]:
    """When the host has enqueued each op; zero under a graph."""
    times, now = [], 0.0
    for i in range(len(ops)):
        now += costs.enqueue_us + costs.event_us * len(waits[i])
        times.append(now)
        now += costs.event_us * (i in records)
    return times

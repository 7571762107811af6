"""Predict when each op of a schedule runs.

Ops that run at the same time share the device. Each asks for the share of the SMs that its
blocks occupy, at most all of it; while the shares sum to more than one, all of them slow
down in proportion. This is processor sharing; the hardware hands out blocks in order of arrival
instead, which gives the same end of a group of ops though not the same end of each. They share
bandwidth and caches too, and slow down further (``_TOGETHER``).

An op follows the one before it on its stream and those whose events it waits for, but for those
that the others follow anyway: a captured graph has no edges from these. It is a link of a chain if
its kernel is launched programmatically and all that it follows let it start early: it then takes
``chained_us``. Each edge from another stream delays it by ``LaunchCosts.cross_us``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from ..ir.schedule_parts import ORIGIN, Event, Op
from .costs import GRAPH, LaunchCosts

#: Microseconds by which a bound must exceed a time, because both are rounded.
_ROUNDING_US = 1e-3
#: Ops that end within so many microseconds end at once.
_SAME_US = 1e-9
_LEAST_SHARE = 0.02  # a launch of few blocks still takes scheduling and bandwidth from the rest
#: Ops that run together slow down by so much of what they occupy, at most of the whole device. The
#: root mean square error of 131 schedules of eight networks on an H200 is 4.0%; it is 12.9% without
#: this, with 2 us for an edge from another stream and no links behind events.
_TOGETHER = 0.35
#: (op that records, op that waits), either of them ORIGIN.
Edge = tuple[int, int]


class Times(NamedTuple):
    """Start and end of each op, and the makespan, in microseconds from the fork."""

    start_us: list[float]
    end_us: list[float]
    makespan_us: float


def simulate(
    ops: Sequence[Op],
    events: Sequence[Event],
    costs: LaunchCosts = GRAPH,
) -> Times:
    """Predict the times of ``ops``, which are in launch order; ``stream``, ``duration_us``,
    ``chained_us`` and ``occupancy`` of each are read."""
    return Simulator(ops, costs).run(Layout.of_ops(ops, events))


class Layout(NamedTuple):
    """The dependences of each op by the streams and events of a schedule, in launch order.

    ``waits`` are the ops whose events it waits for, ``follows`` those that it follows on its stream
    or behind events, without those that others of them follow, ``behind`` the ops that follow it.
    ``joined`` are the ops that the caller's stream waits for at the end, ``records`` those with an
    event.
    """

    streams: Sequence[int]
    waits: list[list[int]]
    joined: list[int]
    records: set[int]
    follows: list[list[int]]
    behind: list[list[int]]

    @classmethod
    def of(cls, streams: Sequence[int], events: Sequence[Edge]) -> Layout:
        waits, joined = _waits(events, len(streams))
        follows = _follows(streams, waits)
        behind: list[list[int]] = [[] for _ in streams]
        for op, followed in enumerate(follows):
            for earlier in followed:
                behind[earlier].append(op)
        return cls(streams, waits, joined, {record for record, _ in events}, follows, behind)

    @classmethod
    def of_ops(cls, ops: Sequence[Op], events: Sequence[Event]) -> Layout:
        edges = [(event.record, event.wait) for event in events]
        return cls.of([op.stream for op in ops], edges)


class Simulator:
    """Ops in launch order, to be simulated on various streams."""

    def __init__(self, ops: Sequence[Op], costs: LaunchCosts = GRAPH) -> None:
        self._durations = [op.duration_us for op in ops]
        self._chained = [op.chained_us for op in ops]
        self._shares = [min(1.0, max(_LEAST_SHARE, op.occupancy.waves)) for op in ops]
        self._costs = costs
        self._depends = [op.depends for op in ops]

    @cached_property
    def _levels(self) -> list[float]:
        """Least time from the start of each op to the end of all that depend on it."""
        levels = [
            alone if chained is None else min(alone, chained)
            for alone, chained in zip(self._durations, self._chained, strict=True)
        ]
        shortest = list(levels)
        for i in reversed(range(len(levels))):
            for earlier in self._depends[i]:
                levels[earlier] = max(levels[earlier], shortest[earlier] + levels[i])
        return levels

    def run(self, layout: Layout, most_us: float = math.inf) -> Times:
        """Predict the times; the makespan is infinite, and the rest unfinished, as soon as it is
        known to exceed ``most_us``. Events keep what depends on an op behind it."""
        behind, missing = layout.behind, [len(followed) for followed in layout.follows]
        count, shares = len(layout.streams), self._shares
        latest = [most_us + _ROUNDING_US - level for level in self._levels]
        ready_at, lengths = self._earliest_starts(layout), self._lengths(layout)
        delays = self._delays(layout)
        start, end = [0.0] * count, [0.0] * count
        waiting = [(ready_at[i], i) for i in range(count) if not missing[i]]
        heapq.heapify(waiting)
        # All that run at a time slow down alike: they end in the order of what a clock shows that
        # slows down with them.
        running: list[tuple[float, int]] = []
        now = clock = asked = 0.0
        while waiting or running:
            while waiting and waiting[0][0] <= now:
                _, i = heapq.heappop(waiting)
                start[i] = now
                heapq.heappush(running, (clock + lengths[i], i))
                asked += shares[i]
            slow = 1.0
            if len(running) > 1:
                slow = max(1.0, asked) + _TOGETHER * min(1.0, asked)
            step = (running[0][0] - clock) * slow if running else math.inf
            if waiting:
                step = min(step, waiting[0][0] - now)
            now += step
            if now > most_us:
                return Times(start, end, math.inf)
            clock += step / slow
            while running and running[0][0] - clock <= _SAME_US:
                _, i = heapq.heappop(running)
                asked = asked - shares[i] if running else 0.0
                end[i] = now
                for follower in behind[i]:
                    ready = max(ready_at[follower], now + delays[follower])
                    ready_at[follower] = ready
                    if ready > latest[follower]:
                        return Times(start, end, math.inf)
                    missing[follower] -= 1
                    if not missing[follower]:
                        heapq.heappush(waiting, (ready, follower))
        joined = (end[op] + self._costs.cross_us for op in layout.joined)
        return Times(start, end, max([*end, *joined], default=0.0))

    def _lengths(self, layout: Layout) -> list[float]:
        """Duration of each op, as a link of a chain where it is one."""
        links = _links(self._chained, layout, self._costs)
        times = zip(self._durations, self._chained, links, strict=True)
        return [
            chained if link and chained is not None else alone for alone, chained, link in times
        ]

    def _delays(self, layout: Layout) -> list[float]:
        """Return the cost of the edges from other streams for each op."""
        streams, cross_us = layout.streams, self._costs.cross_us
        return [
            cross_us * sum(streams[earlier] != streams[op] for earlier in followed)
            for op, followed in enumerate(layout.follows)
        ]

    def _earliest_starts(self, layout: Layout) -> list[float]:
        """Return the times before which no op starts: under a graph those of its start and of the
        fork, otherwise also those at which the host has enqueued it."""
        costs = self._costs
        forks = (costs.fork_us if ORIGIN in waited else 0.0 for waited in layout.waits)
        times = [costs.start_us + fork_us for fork_us in forks]
        if not (costs.enqueue_us or costs.event_us):
            return times
        now = 0.0
        for i, waited in enumerate(layout.waits):
            now += costs.enqueue_us + costs.event_us * len(waited)
            times[i] = max(times[i], now)
            now += costs.event_us * (i in layout.records)
        return times


def linked(ops: Sequence[Op], layout: Layout, costs: LaunchCosts = GRAPH) -> list[bool]:
    """Return whether each op, in launch order, is a link of a chain: its kernel starts early, and
    all that it follows let it."""
    return _links([op.chained_us for op in ops], layout, costs)


def _links(chained: Sequence[float | None], layout: Layout, costs: LaunchCosts) -> list[bool]:
    return [
        own is not None
        and bool(followed)
        and (costs.early_events or not waited)
        and all(chained[earlier] is not None for earlier in followed)
        for own, followed, waited in zip(chained, layout.follows, layout.waits, strict=True)
    ]


def _follows(streams: Sequence[int], waits: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the ops that each one follows, the latest first, without those that others of them
    follow."""
    last: dict[int, int] = {}
    before: list[int] = []  # of each op those that end before it starts, as bits
    follows = []
    for op, stream in enumerate(streams):
        wanted = {last.get(stream, ORIGIN), *waits[op]} - {ORIGIN}
        over, kept = 0, []
        for earlier in sorted(wanted, reverse=True):
            if not over >> earlier & 1:
                kept.append(earlier)
                over |= before[earlier] | 1 << earlier
        follows.append(kept)
        before.append(over)
        last[stream] = op
    return follows


def _waits(events: Sequence[Edge], count: int) -> tuple[list[list[int]], list[int]]:
    """Return the ops that each op waits for, and those that the caller's stream waits for at the
    end."""
    waits: list[list[int]] = [[] for _ in range(count)]
    joined: list[int] = []
    for record, wait in events:
        (joined if wait == ORIGIN else waits[wait]).append(record)
    return waits, joined

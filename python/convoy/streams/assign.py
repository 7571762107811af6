"""List scheduling: assign ops to streams and order their launches."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ..ir.schedule_parts import Op
from .costs import LaunchCosts
from .dependence import Dependences


def assign(
    ops: Sequence[Op],
    graph: Dependences,
    priorities: Sequence[float],
    chains: Sequence[int],
    streams: int,
    costs: LaunchCosts,
) -> tuple[list[int], list[int]]:
    """Return (order, stream of each op).

    Of the ready ops, the one with the longest remaining path (``priorities``) is placed next, on
    the stream where it ends earliest; among equal streams, on the one whose last op it follows.
    Ops of a chain stay on the stream of its first op. Durations do not include sharing of the
    device: :func:`simulate` evaluates the result. A kernel that starts early behind the last one of
    a stream ends earlier there.
    """
    missing = [len(before) for before in graph.reduced]
    ready = [(-priorities[i], i) for i, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    home: dict[int, int] = {}  # chain -> stream
    placed = _Streams(ops, graph, streams, costs)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        if chains[op] not in home:
            home[chains[op]] = placed.best_for(op)
        placed.put(op, home[chains[op]])
        order.append(op)
        for follower in graph.successors[op]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (-priorities[follower], follower))
    return order, placed.stream_of


class _Streams:
    """Streams with the ops placed so far; ``stream_of`` has the stream of each."""

    def __init__(
        self, ops: Sequence[Op], graph: Dependences, streams: int, costs: LaunchCosts
    ) -> None:
        self._ops, self._before, self._costs = ops, graph.reduced, costs
        self._latest: list[int | None] = [None] * streams
        self._end = [0.0] * len(ops)
        self.stream_of = [0] * len(ops)

    def best_for(self, op: int) -> int:
        """The stream on which an op ends earliest."""

        def preference(stream: int) -> tuple[float, bool, bool, int]:
            latest = self._latest[stream]
            follows = latest in self._before[op]
            return self._finish(op, stream), not follows, latest is None, stream

        return min(range(len(self._latest)), key=preference)

    def put(self, op: int, stream: int) -> None:
        """Place an op behind the last one of a stream."""
        self._end[op] = self._finish(op, stream)
        self.stream_of[op], self._latest[stream] = stream, op

    def _finish(self, op: int, stream: int) -> float:
        """Return the time at which an op would end on a stream, in microseconds from the fork."""
        latest, before = self._latest[stream], self._before[op]
        own, costs = self._ops[op], self._costs
        crossing = [earlier for earlier in before if self.stream_of[earlier] != stream]
        follows = [*before, *([] if latest is None else [latest])]
        early = follows and all(self._ops[earlier].early for earlier in follows)
        linked = early and (costs.early_events or not crossing)
        chained = own.chained_us if linked else None
        ready = max((self._end[earlier] for earlier in follows), default=0.0)
        fork = costs.fork_us if stream and not follows else 0.0
        delay = costs.cross_us * len({self.stream_of[earlier] for earlier in crossing})
        return max(fork, ready + delay) + (own.duration_us if chained is None else chained)

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
    free = [0.0] * streams  # when each stream's latest op ends
    latest: list[int | None] = [None] * streams
    home: dict[int, int] = {}  # chain -> stream
    stream_of, end = [0] * len(ops), [0.0] * len(ops)
    order = []
    while ready:
        _, op = heapq.heappop(ready)

        def begin(stream: int, op: int = op) -> float:
            times = [
                end[p] + (costs.cross_us if stream_of[p] != stream else 0.0)
                for p in graph.reduced[op]
            ]
            fork = costs.fork_us if stream and not times and latest[stream] is None else 0.0
            return max(free[stream], fork, *times)

        def finish(stream: int, op: int = op) -> float:
            before, chained = latest[stream], ops[op].chained_us
            waits = any(stream_of[p] != stream for p in graph.reduced[op])
            linked = before is not None and ops[before].early and not waits
            return begin(stream) + (
                chained if linked and chained is not None else ops[op].duration_us
            )

        def preference(stream: int, op: int = op) -> tuple[float, bool, bool, int]:
            follows = latest[stream] in graph.reduced[op]
            return finish(stream), not follows, latest[stream] is None, stream

        if chains[op] in home:
            stream = home[chains[op]]
        else:
            stream = min(range(streams), key=preference)
            home[chains[op]] = stream
        end[op] = finish(stream)
        stream_of[op], free[stream], latest[stream] = stream, end[op], op
        order.append(op)
        for follower in graph.successors[op]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (-priorities[follower], follower))
    return order, stream_of

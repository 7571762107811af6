"""Sets of subgraphs that cover a graph: which one runs each operation, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ..partition.dependencies import bits
from ..partition.match_graph import MatchGraph

Pick = tuple[int, int]  # index of the subgraph in the graph, index of its offer


def launch_order(graph: MatchGraph, picks: Sequence[Pick]) -> list[Pick] | None:
    """The picks ordered so that every value is written before it is read, as close to the order of
    the ops as possible; None if they have a cyclic dependence."""
    known = graph.dependencies
    of_op: dict[int, int] = {}
    for i, (number, _) in enumerate(picks):
        of_op.update((known.position[name], i) for name in graph.subgraphs[number].ops)
    after: list[set[int]] = [set() for _ in picks]
    waiting = [0] * len(picks)
    for op, i in of_op.items():
        for reader in bits(known.consumers[op]):
            j = of_op[reader]
            if j != i and j not in after[i]:
                after[i].add(j)
                waiting[j] += 1
    last = [0] * len(picks)
    for op, i in of_op.items():
        last[i] = max(last[i], op)
    ready = [(last[i], i) for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(picks[i])
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, (last[j], j))
    return order if len(order) == len(picks) else None


def coverings(
    graph: MatchGraph, inside: Iterable[int], whole: int, limit: int
) -> list[tuple[int, ...]]:
    """Ways to cover exactly the operations of a mask with subgraphs out of ``inside``, at most
    ``limit``, in a fixed order."""
    by_first: dict[int, list[tuple[int, int]]] = {}
    for number in inside:
        mask = graph.dependencies.mask(graph.subgraphs[number].ops)
        if not mask & ~whole:
            by_first.setdefault(next(bits(mask)), []).append((mask, number))
    found: list[tuple[int, ...]] = []
    open_ways: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while open_ways and len(found) < limit:
        left, taken = open_ways.pop()
        if not left:
            found.append(taken)
            continue
        choices = by_first.get(next(bits(left)), [])
        open_ways += [
            (left & ~mask, (*taken, number))
            for mask, number in reversed(choices)
            if not mask & ~left
        ]
    return found

"""The order in which the cover search walks the ops: any topological order is right, a narrow one
is fast.

The search remembers, at each cut of the order, the values that are made and still needed. The
number of states grows with the product of their possible forms, so what counts is the number of
values alive at the widest cuts (the vertex separation of the order). Finding the best order is
NP-hard; three cheap ones are tried and the narrowest is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..partition.match_graph import Dependencies, bits

Weights = Sequence[float]


def width_cost(order: Sequence[int], known: Dependencies, weights: Weights) -> float:
    """Sum over all cuts of 2 to the weight of the values alive there."""
    left = [mask.bit_count() for mask in known.consumers]
    producers = _producers(known)
    alive, total = 0.0, 0.0
    for op in order:
        for source in producers[op]:
            left[source] -= 1
            if left[source] == 0:
                alive -= weights[source]
        if left[op]:
            alive += weights[op]
        total += 2.0 ** min(alive, 500.0)
    return total


def _producers(known: Dependencies) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in known.consumers]
    for source, mask in enumerate(known.consumers):
        for reader in bits(mask):
            found[reader].append(source)
    return found


Rank = Callable[[int, list[int], list[int]], tuple[float, ...]]


def _by(known: Dependencies, producers: list[list[int]], rank: Rank) -> list[int]:
    """Topological order that always takes the ready op of lowest rank.

    ``rank(op, left, placed)``: ``left`` counts the consumers of each value yet to come,
    ``placed`` is the place of each op in the order so far, or -1.
    """
    left = [mask.bit_count() for mask in known.consumers]
    placed = [-1] * len(left)
    waiting = [len(sources) for sources in producers]
    ready = [op for op, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        op = min(ready, key=lambda item: rank(item, left, placed))
        ready.remove(op)
        placed[op] = len(order)
        order.append(op)
        for source in producers[op]:
            left[source] -= 1
        for reader in bits(known.consumers[op]):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return order


def narrow_order(known: Dependencies, weights: Weights) -> list[int]:
    """A topological order of all ops with few values alive at once.

    ``weights`` says how much a value counts: 0 where it has one form only.
    """
    producers = _producers(known)

    def recent(op: int, placed: list[int]) -> int:
        return max((placed[source] for source in producers[op]), default=-1)

    def growth(op: int, left: list[int], placed: list[int]) -> tuple[float, ...]:
        freed = sum(weights[s] for s in producers[op] if left[s] == 1)
        born = weights[op] if left[op] else 0.0
        return born - freed, -recent(op, placed), op

    def depth_first(op: int, left: list[int], placed: list[int]) -> tuple[float, ...]:
        return -recent(op, placed), op

    orders = [list(range(len(producers)))]
    orders += [_by(known, producers, rank) for rank in (growth, depth_first)]
    return min(orders, key=lambda order: width_cost(order, known, weights))

"""Choosing one option per position so that the larger of two sums is smallest.

With host and device running side by side the time of a sequence is max(sum of host times, sum of
device times), and the choices are not independent. All pairs of sums that no other pair beats on
both sides are carried along (the Pareto front), which is exact; beyond ``limit`` pairs the front
is thinned to equal steps, and the result is then within one step for each position.
"""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[float, float]


def front(pairs: Sequence[Pair]) -> list[int]:
    """Indices of the pairs that no other pair beats on both sides, by rising first value."""
    order = sorted(range(len(pairs)), key=lambda i: (pairs[i], i))
    kept: list[int] = []
    lowest = float("inf")
    for i in order:
        if pairs[i][1] < lowest:
            kept.append(i)
            lowest = pairs[i][1]
    return kept


def smallest_maximum(options: Sequence[Sequence[Pair]], limit: int = 4096) -> list[int]:
    """For each position the index of the option to take; every position needs an option."""
    states: list[Pair] = [(0.0, 0.0)]
    steps: list[list[tuple[int, int]]] = []  # per position: (state before, option) of each state
    for pairs in options:
        useful = front(pairs)
        grown = [
            ((a + pairs[i][0], b + pairs[i][1]), (before, i))
            for before, (a, b) in enumerate(states)
            for i in useful
        ]
        kept = front([pair for pair, _ in grown])
        if len(kept) > limit:
            kept = [kept[round(i * (len(kept) - 1) / (limit - 1))] for i in range(limit)]
        states = [grown[i][0] for i in kept]
        steps.append([grown[i][1] for i in kept])
    at = min(range(len(states)), key=lambda i: (max(states[i]), sum(states[i]), i))
    taken: list[int] = []
    for step in reversed(steps):
        at, option = step[at]
        taken.append(option)
    return taken[::-1]

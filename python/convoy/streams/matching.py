"""Matchings of least cost in a bipartite graph: successive shortest augmenting paths.

The potentials of Jonker and Volgenant (1987) keep all costs along a path from being negative, so
that Dijkstra's algorithm finds it. In a graph of chains most paths have one edge.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence


def least_cost(costs: Sequence[Mapping[int, float]]) -> list[int]:
    """Give each row a column of its own so that the sum of the costs is least.

    Args:
        costs: The columns that each row may have, with what they cost, at least zero. There is a
            matching of all rows.
    """
    matched = [-1] * len(costs)
    owner: dict[int, int] = {}
    of_row, of_column = [0.0] * len(costs), dict.fromkeys((c for row in costs for c in row), 0.0)
    for first in range(len(costs)):
        row, length, column = first, 0.0, -1
        lengths: dict[int, float] = {}
        before: dict[int, int] = {}
        reached: dict[int, int] = {}  # columns, with the rows that have them
        heap: list[tuple[float, int]] = []
        while row >= 0:
            for column, cost in costs[row].items():
                here = length + cost - of_row[row] - of_column[column]
                if column not in reached and here < lengths.get(column, math.inf):
                    lengths[column], before[column] = here, row
                    heapq.heappush(heap, (here, column))
            length, column = heapq.heappop(heap)
            while column in reached:  # by a shorter path
                length, column = heapq.heappop(heap)
            row = reached[column] = owner.get(column, -1)
        of_row[first] += length
        for other, its_row in reached.items():
            if its_row >= 0:
                of_row[its_row] += length - lengths[other]
                of_column[other] -= length - lengths[other]
        while row != first:
            row = before[column]
            owner[column], matched[row], column = row, column, matched[row]
    return matched

"""Lay out the ops of a schedule in layers from top to bottom, with few crossings.

The layered method of Sugiyama, Tagawa and Toda (1981): layers by longest path, long edges cut by
points of their own, order within a layer by the mean place of the neighbours.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

# Beyond so many points long edges are drawn straight: the picture is unreadable either way.
_MOST_POINTS = 6000
_SWEEPS = 6


@dataclass(frozen=True)
class Placed:
    """Places in units of nodes: ``x`` along a layer (any real number from 0), ``y`` the layer.

    ``edges`` are (from node, to node, points): the points that the line passes, both ends included.
    """

    x: tuple[float, ...]
    y: tuple[int, ...]
    edges: tuple[tuple[int, int, tuple[tuple[float, float], ...]], ...]

    @property
    def width(self) -> float:
        inner = [x for _, _, points in self.edges for x, _ in points]
        return 1 + max([*self.x, *inner], default=0.0)

    @property
    def height(self) -> int:
        return 1 + max(self.y, default=0)


def layers(depends: Sequence[Collection[int]]) -> list[int]:
    """Return the layer of each node: one more than that of its deepest input.

    Inputs come before their users. A node without inputs (a weight's cast) is placed directly above
    its first reader.
    """
    depth: list[int] = []
    first: dict[int, int] = {}
    for inputs in depends:
        depth.append(1 + max((depth[i] for i in inputs), default=-1))
        for i in inputs:
            first[i] = min(first.get(i, depth[-1]), depth[-1])
    return [
        y if inputs or i not in first else first[i] - 1
        for i, (y, inputs) in enumerate(zip(depth, depends, strict=True))
    ]


def place(depends: Sequence[Collection[int]]) -> Placed:
    """Place nodes in launch order, each given as the indices of those it takes something from."""
    direct = [sorted(set(inputs)) for inputs in depends]
    y = layers(direct)
    rows: list[list[int]] = [[] for _ in range(1 + max(y, default=-1))]
    for node, row in enumerate(y):
        rows[row].append(node)
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    chains: dict[tuple[int, int], list[int]] = {}
    levels = list(y)
    cut = sum(y[i] - y[j] - 1 for i, inputs in enumerate(direct) for j in inputs) <= _MOST_POINTS
    for i, inputs in enumerate(direct):
        for j in inputs:
            chain = [j]
            for level in range(y[j] + 1, y[i]) if cut else ():
                levels.append(level)
                rows[level].append(len(levels) - 1)
                chain.append(len(levels) - 1)
            chain.append(i)
            chains[j, i] = chain
            for first, second in itertools.pairwise(chain):
                below[first].append(second)
                above[second].append(first)
    x = _along(rows, above, below, len(y))
    edges = tuple(
        (j, i, tuple((x[p], float(levels[p])) for p in chain)) for (j, i), chain in chains.items()
    )
    return Placed(tuple(x[: len(y)]), tuple(y), edges)


def _along(
    rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]], nodes: int
) -> list[float]:
    """Place along each layer: near the mean of the neighbours, one unit between nodes, half a unit
    between the points of edges."""
    x = [0.0] * sum(map(len, rows))
    for row in rows:
        for at, node in enumerate(row):
            x[node] = at - (len(row) - 1) / 2
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = {}
            for node in row:
                near = above[node] if down else below[node]
                wanted[node] = sum(x[n] for n in near) / len(near) if near else x[node]
            row.sort(key=lambda node: (wanted[node], x[node]))
            _spread(row, wanted, x, nodes)
    least = min(x, default=0.0)
    return [value - least for value in x]


def _spread(row: list[int], wanted: dict[int, float], x: list[float], nodes: int) -> None:
    """Keep the order, take the wanted places, push apart what is too near: groups that touch are
    moved together to the mean of what their members want (pool adjacent violators)."""
    groups: list[tuple[float, int]] = []  # (sum of offset-free wishes, members)
    offsets: list[float] = []
    for i, node in enumerate(row):
        half = [0.5 if n < nodes else 0.25 for n in (row[i - 1], node)]
        offsets.append(offsets[-1] + sum(half) if i else 0.0)
        groups.append((wanted[node] - offsets[-1], 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] >= groups[-1][0] / groups[-1][1]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [(a + b, m + n)]
    at = 0
    for total, members in groups:
        for node in row[at : at + members]:
            x[node] = total / members + offsets[at]
            at += 1

"""Links of chains: launches that start before their predecessor has ended.

A kernel that is launched programmatically takes less time if its predecessor lets it start early.
On one stream a launch follows the one that made the last value that it reads, or a later one; the
search takes the former as the predecessor, so that costs are terms of pairs of subgraphs along the
edges of the graph. The simulated schedule has the order of launches itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.objective import saved_us, starts_successor_early
from ..partition.match_graph import MatchGraph
from .assignment import Pick


class Links:
    """The pairs of a priced graph.

    Attributes:
        anchors: For each subgraph the position of the operation whose kernel precedes it; -1 for
            one that reads nothing but what the caller brings.
    """

    def __init__(self, graph: MatchGraph) -> None:
        self._graph, self._maker = graph, _makers(graph)
        self.anchors = [self._anchor(graph.reads(subgraph)) for subgraph in graph.subgraphs]

    def _anchor(self, values: Sequence[str]) -> int:
        position = self._graph.dependencies.position
        return max((self._maker[position[v]] for v in values if v in position), default=-1)

    def of(self, picks: Sequence[Pick]) -> set[Pick]:
        """The picks of a cover whose predecessor lets them start early, and that do."""
        position, subgraphs = self._graph.dependencies.position, self._graph.subgraphs
        early = {
            position[name]
            for number, index in picks
            if starts_successor_early(subgraphs[number].offers[index].measurement)
            for name in subgraphs[number].ops
        }
        return {
            (number, index)
            for number, index in picks
            if self.anchors[number] in early
            and saved_us(subgraphs[number].offers[index].measurement)
        }


def _makers(graph: MatchGraph) -> list[int]:
    """For each operation the one whose kernel makes its value: itself, or what a view is of; -1 for
    views of what the caller brings."""
    position = graph.dependencies.position
    launched = [False] * len(graph.ops)
    for subgraph in graph.subgraphs:
        if len(subgraph.ops) > 1 or any(offer.measurement.kernel_us for offer in subgraph.offers):
            for name in subgraph.ops:
                launched[position[name]] = True
    makers: list[int] = []
    for i, op in enumerate(graph.ops):
        above = (makers[position[name]] for name in op.inputs if name in position)
        makers.append(i if launched[i] else max(above, default=-1))
    return makers

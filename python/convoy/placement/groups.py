"""Groups of ops that can be placed independently of each other, and the ways to place each.

Given several covers of one graph, ops that some subgraph of some of them covers together belong to
one group; each cover then splits along the groups, and any mixture of their parts covers every op
exactly once. This is the search space of the evolutionary level: far smaller than all covers, and
made of parts that are each good under some objective or for some backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..partition.dependencies import bits
from ..partition.match_graph import MatchGraph
from .assignment import Pick, coverings

Part = tuple[Pick, ...]
MOST_OPS = 16  # groups larger than this get no ways beyond those of the covers given


@dataclass(frozen=True)
class Group:
    """Ops by position, and the ways to cover exactly these; the first cover's way comes first."""

    ops: int
    parts: tuple[Part, ...]


def make_groups(
    graph: MatchGraph, covers: Sequence[Sequence[Pick]], usable: Sequence[Sequence[int]], most: int
) -> list[Group]:
    """Groups of the covers, in order of their first op, with at most ``most`` ways each.

    Ways come from the covers first, in their order, then from all other subgraphs and offers that
    fit into the group: a kernel that is no cover's choice may still be the one that overlaps
    best.
    """
    known = graph.dependencies
    masks = [known.mask(subgraph.ops) for subgraph in graph.subgraphs]
    inside: list[list[int]] = [[] for _ in graph.ops]
    for number, mask in enumerate(masks):
        inside[next(bits(mask))].append(number)
    groups = []
    for ops in _joined([masks[number] for cover in covers for number, _ in cover], len(graph.ops)):
        parts: dict[Part, None] = {}
        for cover in covers:
            own = sorted(
                (pick for pick in cover if masks[pick[0]] & ops), key=lambda p: masks[p[0]]
            )
            parts.setdefault(tuple(own))
        if ops.bit_count() <= MOST_OPS:
            fitting = [
                n for op in bits(ops) for n in inside[op] if usable[n] and not masks[n] & ~ops
            ]
            for part in _more_parts(graph, fitting, ops, usable, most):
                parts.setdefault(tuple(sorted(part, key=lambda p: masks[p[0]])))
        groups.append(Group(ops, tuple(parts)[: max(most, 1)]))
    return groups


def _joined(masks: Sequence[int], count: int) -> list[int]:
    """Smallest sets of ops that no mask straddles, by first op (union-find over ops)."""
    parent = list(range(count))

    def root(op: int) -> int:
        while parent[op] != op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    for mask in masks:
        first, *rest = map(root, bits(mask))
        for other in rest:
            low, high = sorted((root(first), root(other)))
            parent[high] = low
    found: dict[int, int] = {}
    for op in range(count):
        found[root(op)] = found.get(root(op), 0) | 1 << op
    return [found[key] for key in sorted(found)]


def _more_parts(
    graph: MatchGraph, fitting: Sequence[int], ops: int, usable: Sequence[Sequence[int]], most: int
) -> list[Part]:
    """Other ways to cover a group: every covering with first offers, then one other offer each."""
    found: list[Part] = []
    for numbers in coverings(graph, fitting, ops, most):
        first = tuple((number, usable[number][0]) for number in numbers)
        found.append(first)
        for place, number in enumerate(numbers):
            for index in usable[number][1:]:
                found.append((*first[:place], (number, index), *first[place + 1 :]))
    return found

"""The cover search against brute force, on random graphs with random matches and costs.

``CONVOY_COVER_EXAMPLES`` sets how many graphs are tried under each objective (default 50).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import NoCandidate
from convoy.ir import objective as objectives
from convoy.partition.match_graph import MatchGraph
from convoy.placement.cover import Cover, find_cover
from convoy.placement.solve import WIDTH

from ..helpers.synthetic import BACKENDS, random_graph

EXAMPLES = int(os.environ.get("CONVOY_COVER_EXAMPLES", "50"))


def partitions(graph: MatchGraph) -> Iterator[tuple[int, ...]]:
    """All sets of subgraphs that cover every op once, cycles and all."""
    sets = [frozenset(subgraph.ops) for subgraph in graph.subgraphs]

    def grow(left: frozenset[str], taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not left:
            yield taken
            return
        first = min(left)
        for number, ops in enumerate(sets):
            if first in ops and ops <= left:
                yield from grow(left - ops, (*taken, number))

    yield from grow(frozenset(op.name for op in graph.ops), ())


def has_cycle(graph: MatchGraph, numbers: tuple[int, ...]) -> bool:
    """Whether the subgraphs wait for each other: none of those left can run."""
    left = set(numbers)
    made = set(graph.inputs)
    while left:
        able = {n for n in left if made.issuperset(graph.reads(graph.subgraphs[n]))}
        if not able:
            return True
        for number in able:
            made.update(graph.subgraphs[number].outputs)
        left -= able
    return False


def ranked(graph: MatchGraph, objective: str) -> tuple[float, ...] | None:
    """(cost, sum of both sides, priority...) of the best cover; None where there is none.

    For one-sided objectives offers are independent, so the best of each subgraph is enough; for
    ``stream`` all reachable pairs of sums are kept.
    """
    best = None
    for numbers in partitions(graph):
        if has_cycle(graph, numbers):
            continue
        states = {(0.0, 0.0, 0, 0, 0)}
        for number in numbers:
            subgraph = graph.subgraphs[number]
            states = {
                _plus(
                    state,
                    offer.measurement,
                    objective,
                    (
                        not offer.candidate.deterministic,
                        subgraph.launches,
                        BACKENDS.index(offer.candidate.backend),
                    ),
                )
                for state in states
                for offer in subgraph.offers
            }
        for first, second, *rest in states:
            key = (max(first, second), first + second, *rest)
            best = key if best is None else min(best, key)
    return best


def _sides(measured, objective: str) -> tuple[float, float]:
    if objective == "stream":
        device = measured.kernel_us + objectives.STREAM_GAP_US if measured.kernel_us else 0.0
        return device, measured.enqueue_us
    return objectives.own_cost(measured, objective)[0], 0.0


def _plus(state, measured, objective: str, more) -> tuple:
    first, second = _sides(measured, objective)
    return (
        state[0] + first,
        state[1] + second,
        *(a + int(b) for a, b in zip(state[2:], more, strict=True)),
    )


def check_legal(cover: Cover) -> None:
    """Every op once, no cycle, every value written before it is read, launch order feasible."""
    graph = cover.graph
    covered = [name for subgraph, _ in cover.launches for name in subgraph.ops]
    assert sorted(covered) == sorted(op.name for op in graph.ops)
    made = set(graph.inputs)
    for subgraph, offer in cover.launches:
        assert offer in subgraph.offers and offer.measurement.ok
        assert made.issuperset(graph.reads(subgraph))
        made.update(subgraph.outputs)
    assert made.issuperset(graph.results)


def priority(cover: Cover) -> tuple[int, int, int]:
    return (
        sum(not o.candidate.deterministic for _, o in cover.launches),
        sum(s.launches for s, _ in cover.launches),
        sum(BACKENDS.index(o.candidate.backend) for _, o in cover.launches),
    )


def test_bound_of_the_integer_program_allows_for_its_tolerance() -> None:
    """The solver's dual bound was two millionths below this optimum."""
    rng = random.Random(831421610)
    graph = random_graph(rng, 1, 3)
    assert find_cover(graph, "stream", BACKENDS, width=0).exact


@pytest.mark.parametrize("width", [WIDTH, 0], ids=["cuts", "integer"])
@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    ops=st.integers(1, 12),
    groups=st.integers(0, 10),
)
def test_equal_to_brute_force(objective: str, width: int, seed: int, ops: int, groups: int) -> None:
    """Both solvers; the search over cuts also takes the preferred one of all cheapest covers."""
    rng = random.Random(seed)
    graph = random_graph(rng, ops, groups)
    best = ranked(graph, objective)
    if best is None:
        with pytest.raises(NoCandidate):
            find_cover(graph, objective, BACKENDS, width=width)
        return
    cover = find_cover(graph, objective, BACKENDS, width=width)
    check_legal(cover)
    assert cover.exact
    assert cover.total_us() == cover.optimum_us == best[0]
    if width:
        sides = [_sides(measured, objective) for measured in cover.measurements()]
        assert (sum(map(sum, sides)), *priority(cover)) == best[1:]

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
from convoy.placement.synthetic import BACKENDS, FORMS, random_graph, random_transitions
from convoy.placement.transition import Transitions

EXAMPLES = int(os.environ.get("CONVOY_COVER_EXAMPLES", "50"))


def partitions(graph: MatchGraph) -> Iterator[tuple[int, ...]]:
    """All sets of matches that cover every op once, cycles and all."""
    sets = [frozenset(match.ops) for match in graph.matches]

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
    """Whether the matches wait for each other: none of those left can run."""
    left = set(numbers)
    made = {name for name, _ in graph.inputs}
    while left:
        able = {n for n in left if made.issuperset(graph.reads(graph.matches[n]))}
        if not able:
            return True
        for number in able:
            made.update(graph.matches[number].outputs)
        left -= able
    return False


def transition_figures(
    graph: MatchGraph, numbers: tuple[int, ...], transitions: Transitions
) -> list | None:
    """Figures of all transitions of a cover, one per value and form; None if one is impossible."""
    elements = {op.name: op.elements for op in graph.ops}
    form = dict(graph.inputs)
    for number in numbers:
        match = graph.matches[number]
        form.update({name: match.writes_as(name) for name in match.outputs})
    wanted = {(name, want) for name, want in graph.results if want is not None}
    for number in numbers:
        match = graph.matches[number]
        wanted |= {(name, match.reads_as(name)) for name in graph.reads(match)}
    figures = []
    for name, want in sorted(wanted):
        if want != form[name]:
            figure = transitions.between(elements.get(name, 1), form[name], want)
            if figure is None:
                return None
            figures.append(figure)
    return figures


def ranked(graph: MatchGraph, transitions: Transitions, objective: str) -> tuple[float, ...] | None:
    """(cost, sum of both sides, priority...) of the best cover; None where there is none.

    For one-sided objectives options are independent, so the best of each match is enough; for
    ``stream`` all reachable pairs of sums are kept.
    """
    best = None
    for numbers in partitions(graph):
        if has_cycle(graph, numbers):
            continue
        between = transition_figures(graph, numbers, transitions)
        if between is None:
            continue
        states = {(0.0, 0.0, 0, 0, 0)}
        for figure in between:
            states = {
                _plus(s, figure, objective, (0, any(_sides(figure, objective)), 0)) for s in states
            }
        for number in numbers:
            match = graph.matches[number]
            states = {
                _plus(
                    state,
                    scored.measurement,
                    objective,
                    (
                        not scored.candidate.deterministic,
                        match.launches,
                        BACKENDS.index(scored.candidate.backend),
                    ),
                )
                for state in states
                for scored in match.options
            }
        for first, second, *rest in states:
            key = (max(first, second), first + second, *rest)
            best = key if best is None else min(best, key)
    return best


def _sides(figure, objective: str) -> tuple[float, float]:
    if objective == "stream":
        device = figure.kernel_us + objectives.STREAM_GAP_US if figure.kernel_us else 0.0
        return device, figure.enqueue_us
    return objectives.own_cost(figure, objective)[0], 0.0


def _plus(state, figure, objective: str, more) -> tuple:
    first, second = _sides(figure, objective)
    return (
        state[0] + first,
        state[1] + second,
        *(a + int(b) for a, b in zip(state[2:], more, strict=True)),
    )


def check_legal(cover: Cover) -> None:
    """Every op once, no cycle, every value written before it is read, launch order feasible."""
    graph = cover.graph
    covered = [name for match, _ in cover.matches for name in match.ops]
    assert sorted(covered) == sorted(op.name for op in graph.ops)
    made = {name for name, _ in graph.inputs}
    for match, scored in cover.matches:
        assert scored in match.options and scored.measurement.ok
        assert made.issuperset(graph.reads(match))
        made.update(match.outputs)
    assert made.issuperset(name for name, _ in graph.results)


def priority(cover: Cover) -> tuple[int, int, int]:
    extra = [t for t in cover.transitions if any(_sides(t.measurement, cover.objective))]
    return (
        sum(not s.candidate.deterministic for _, s in cover.matches),
        sum(m.launches for m, _ in cover.matches) + len(extra),
        sum(BACKENDS.index(s.candidate.backend) for _, s in cover.matches),
    )


def test_bound_of_the_integer_program_allows_for_its_tolerance() -> None:
    """The solver's dual bound was two millionths below this optimum."""
    rng = random.Random(831421610)
    graph, transitions = random_graph(rng, 1, 3, 3), random_transitions(rng, FORMS)
    assert find_cover(graph, "stream", transitions, BACKENDS, width=0).exact


@pytest.mark.parametrize("width", [WIDTH, 0], ids=["cuts", "integer"])
@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    ops=st.integers(1, 12),
    forms=st.integers(1, 3),
    groups=st.integers(0, 10),
)
def test_equal_to_brute_force(
    objective: str, width: int, seed: int, ops: int, forms: int, groups: int
) -> None:
    """Both solvers; the search over cuts also takes the preferred one of all cheapest covers."""
    rng = random.Random(seed)
    graph = random_graph(rng, ops, forms, groups)
    transitions = random_transitions(rng, FORMS)
    best = ranked(graph, transitions, objective)
    if best is None:
        with pytest.raises(NoCandidate):
            find_cover(graph, objective, transitions, BACKENDS, width=width)
        return
    cover = find_cover(graph, objective, transitions, BACKENDS, width=width)
    check_legal(cover)
    assert cover.exact
    assert cover.total_us() == cover.optimum_us == best[0]
    if width:
        sides = [_sides(figure, objective) for figure in cover.figures()]
        assert (sum(map(sum, sides)), *priority(cover)) == best[1:]

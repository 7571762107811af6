"""The evolutionary level: never worse than its seeds, reproducible."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import CompileFailed, InvalidOption, NoCandidate
from convoy.placement.cover import Cover, cover_of, usable_offers
from convoy.placement.evolve import Budget, Evolved, evolve, seed_covers
from convoy.placement.groups import make_groups
from convoy.placement.variation import Settings

from ..helpers.synthetic import BACKENDS, network, random_graph


def changing(cover: Cover) -> float:
    """A whole that does not add up: every change of the backend between launches costs 2 us."""
    backends = [offer.candidate.backend for _, offer in cover.launches]
    changes = sum(a != b for a, b in itertools.pairwise(backends))
    return cover.total_us("graph") + 2.0 * changes


def refined(seed: int = 0, size: int = 60, **options: object) -> Evolved:
    graph = network("resnet", size, seed=3)
    seeds = seed_covers(graph, "graph", BACKENDS)
    budget = options.pop("budget", Budget(evaluations=150))
    fitness = options.pop("fitness", changing)
    return evolve(seeds, fitness, budget, seed=seed, **options)


def test_finds_better_than_every_seed_where_the_whole_does_not_add_up() -> None:
    found = refined()
    assert found.fitness_us < min(found.seeds.values()) * 0.99
    assert found.fitness_us == changing(found.cover)
    assert list(found.history) == sorted(found.history, reverse=True)
    assert found.evaluations <= 150


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), noise=st.integers(0, 10**6))
def test_never_worse_than_the_best_seed(seed: int, noise: int) -> None:
    """Any fitness, on graphs whose subgraphs may form cycles."""
    rng = random.Random(seed)
    graph = random_graph(rng, 10, groups=8)
    try:
        seeds = seed_covers(graph, "graph", BACKENDS)
    except NoCandidate:
        return

    def fitness(cover: Cover) -> float:
        return random.Random(f"{noise} {sorted(cover.picks)}").random()

    found = evolve(seeds, fitness, Budget(40, patience=3), Settings(8))
    assert found.fitness_us <= min(found.seeds.values())
    assert found.fitness_us == fitness(found.cover)
    covered = sorted(name for subgraph, _ in found.cover.launches for name in subgraph.ops)
    assert covered == sorted(op.name for op in graph.ops)


def test_same_seed_same_result_whatever_else_draws_random_numbers() -> None:
    def disturbing(cover: Cover) -> float:
        random.seed(len(cover.picks))
        return changing(cover) + 0 * random.random()

    random.seed(1)
    before = random.getstate()
    first = refined(seed=5)
    assert random.getstate() == before, "the caller's random numbers are left alone"
    random.random()
    second = refined(seed=5, fitness=disturbing)
    assert first == second
    assert refined(seed=6).history != first.history


def test_failures_are_infinitely_slow_and_not_tried_again() -> None:
    calls: list[tuple[tuple[int, int], ...]] = []

    def failing(cover: Cover) -> float:
        calls.append(cover.picks)
        if "cutlass" in cover.backends():
            raise CompileFailed("an error")
        return changing(cover)

    first = refined(fitness=failing)
    assert first.fitness_us < float("inf") and "cutlass" not in first.cover.backends()
    assert len(calls) == len(set(calls))

    def broken(cover: Cover) -> float:
        raise CompileFailed("an error")

    with pytest.raises(NoCandidate):
        refined(fitness=broken)


def test_patience() -> None:
    flat = refined(fitness=lambda cover: 1.0, budget=Budget(evaluations=10**6, patience=4))
    assert len(flat.history) == 5


def test_only_seeds_without_a_budget() -> None:
    assert refined(budget=Budget(evaluations=0)).evaluations == len(refined().seeds)


def test_no_seeds() -> None:
    with pytest.raises(InvalidOption, match="no seeds"):
        evolve({}, changing)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), choice=st.integers(0, 10**6))
def test_any_mixture_of_group_ways_covers_every_op_once(seed: int, choice: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 12, groups=8)
    try:
        seeds = seed_covers(graph, "graph", BACKENDS)
    except NoCandidate:
        return
    covers = [cover.picks for cover in seeds.values()]
    groups = make_groups(graph, covers, usable_offers(graph), most=12)
    draw = random.Random(choice)
    picks = [pick for group in groups for pick in draw.choice(group.parts)]
    ops = sorted(name for number, _ in picks for name in graph.subgraphs[number].ops)
    assert ops == sorted(op.name for op in graph.ops)
    cover = cover_of(graph, "graph", picks)
    if cover is not None:
        assert cover.total_us() >= seeds["exact"].optimum_us

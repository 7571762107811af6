"""The evolutionary level: never worse than its seeds, reproducible, resumable."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.errors import CompileFailed, InvalidOption, NoCandidate
from convoy.placement.cover import Cover, cover_of, usable_offers
from convoy.placement.evaluations import Evaluations
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


def test_interrupted_search_goes_on_where_it_was(tmp_path: Path) -> None:
    cache = tmp_path / "evaluations.jsonl"
    whole = refined(seed=2, budget=Budget(120, patience=99))
    part = refined(seed=2, budget=Budget(50, patience=99), cache=cache)
    assert part.evaluations == 50
    with cache.open("ab") as file:
        file.write(b'{"space": "cut o')
    rest = refined(seed=2, budget=Budget(70, patience=99), cache=cache)
    assert rest.fitness_us == whole.fitness_us
    assert rest.cover.picks == whole.cover.picks
    assert len({tuple(json.loads(line)["genes"]) for line in _lines(cache)}) == 120


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.endswith("}")]


def test_cache_of_another_space_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    Evaluations("one", path).add((1, 2), 5.0)
    Evaluations("two", path).add((1, 2), float("inf"), "illegal address")
    assert Evaluations("one", path).get((1, 2)) == 5.0
    assert Evaluations("two", path).get((1, 2)) == float("inf")
    assert Evaluations("three", path).get((1, 2)) is None


def test_failures_are_infinitely_slow_and_not_tried_again(tmp_path: Path) -> None:
    calls: list[tuple[tuple[int, int], ...]] = []

    def failing(cover: Cover) -> float:
        calls.append(cover.picks)
        if "cutlass" in cover.backends():
            raise CompileFailed("an error")
        return changing(cover)

    cache = tmp_path / "evaluations.jsonl"
    first = refined(fitness=failing, cache=cache)
    assert first.fitness_us < float("inf") and "cutlass" not in first.cover.backends()
    assert len(calls) == len(set(calls))
    done = len(calls)
    refined(fitness=failing, cache=cache, budget=Budget(evaluations=0))
    assert len(calls) == done

    def broken(cover: Cover) -> float:
        raise CompileFailed("an error")

    with pytest.raises(NoCandidate):
        refined(fitness=broken)


def test_a_lucky_measurement_does_not_win() -> None:
    """Noise that makes others look faster once: measured again, the seed stays."""
    seen: set[tuple[tuple[int, int], ...]] = set()
    graph = network("resnet", 60, seed=3)
    seeds = seed_covers(graph, "graph", BACKENDS)
    exact = tuple(sorted(seeds["exact"].picks))

    def lucky(cover: Cover) -> float:
        picks = tuple(sorted(cover.picks))
        first = picks not in seen
        seen.add(picks)
        if picks == exact:
            return 100.0
        return 90.0 if first else 120.0

    found = evolve({"exact": seeds["exact"]}, lucky, Budget(60), seed=1, confirm=3)
    assert found.confirmed
    assert tuple(sorted(found.cover.picks)) == exact
    assert found.fitness_us == 100.0


def test_budget_in_seconds_and_patience() -> None:
    assert refined(budget=Budget(seconds=0.0)).evaluations == len(refined().seeds)
    flat = refined(fitness=lambda cover: 1.0, budget=Budget(evaluations=10**6, patience=4))
    assert len(flat.history) == 5


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

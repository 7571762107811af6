"""The larger of two sums, smallest: against trying everything."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from convoy.placement.pareto import front, smallest_maximum

VALUES = st.integers(0, 6).map(float)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4)


def larger_sum(options: list[list[tuple[float, float]]], taken: tuple[int, ...]) -> float:
    chosen = [pairs[i] for pairs, i in zip(options, taken, strict=True)]
    return max(sum(a for a, _ in chosen), sum(b for _, b in chosen))


@given(st.lists(PAIRS, max_size=5))
def test_no_combination_is_better(options: list[list[tuple[float, float]]]) -> None:
    taken = tuple(smallest_maximum(options))
    every = itertools.product(*(range(len(pairs)) for pairs in options))
    assert larger_sum(options, taken) == min(larger_sum(options, other) for other in every)


@given(PAIRS)
def test_front_holds_what_nothing_beats(pairs: list[tuple[float, float]]) -> None:
    kept = front(pairs)
    assert [pairs[i] for i in kept] == sorted({pairs[i] for i in kept})
    for a, b in pairs:
        assert any(pairs[i][0] <= a and pairs[i][1] <= b for i in kept)
    for i, j in itertools.permutations(kept, 2):
        assert pairs[i][0] > pairs[j][0] or pairs[i][1] > pairs[j][1]


def test_a_thinned_front_is_within_a_step_for_each_position() -> None:
    options = [[(float(i), float(9 - i)) for i in range(10)] for _ in range(12)]
    best = larger_sum(options, tuple(smallest_maximum(options)))
    thinned = larger_sum(options, tuple(smallest_maximum(options, limit=20)))
    step = 12 * 9 / 19
    assert best == 54 and best <= thinned <= best + 12 * step


def test_nothing_to_choose() -> None:
    assert smallest_maximum([]) == [] and front([]) == []

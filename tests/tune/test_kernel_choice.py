"""Selection of kernels to compile: few that serve many."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.tune.kernel_choice import DEPTH, MISSING, choose_kernels


def total(workloads, at_hand) -> float:
    """Evaluate the objective independently: sum of the mean scores of the best few candidates."""
    result = 0.0
    for scored in workloads:
        lowest = min(score for _, score in scored)
        have = [score for kernel, score in scored if not kernel or kernel in at_hand]
        result += sum(sorted([*have, *[lowest + MISSING] * DEPTH])[:DEPTH]) / DEPTH
    return result


def test_a_kernel_that_serves_many_goes_before_those_that_serve_one() -> None:
    workloads = [
        [("", 0.3), ("", 0.3), ("", 0.3), ("shared", 0.05), (f"own{i}", 0.04)] for i in range(10)
    ]
    assert choose_kernels(workloads, set(), 0.5) == {"shared"}
    assert choose_kernels(workloads, {"shared"}, 0.5) == set()
    assert len(choose_kernels(workloads, {"shared"}, 0.01)) == 10


def test_a_workload_that_nothing_else_can_run_gets_kernels() -> None:
    chosen = choose_kernels([[("a", 0.0), ("b", 0.1), ("c", 0.2), ("d", 0.3)]], set(), 0.05)
    assert {"a", "b", "c"} <= chosen
    assert choose_kernels([[("", 0.0), ("", 0.0), ("", 0.0), ("slow", 0.5)]], set(), 0.05) == set()
    assert choose_kernels([], set(), 0.05) == set()


scores = st.integers(0, 40).map(lambda x: x / 40)
scored = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c", "d"]), scores), min_size=1)


@settings(max_examples=200)
@given(st.lists(scored, min_size=1, max_size=6))
def test_near_the_best_choice_of_as_many(workloads) -> None:
    """At least 1 - 1/e of what the best set of that size lowers the total by."""
    chosen = choose_kernels(workloads, set(), 1e-9)
    for count in range(1, len(chosen) + 1):
        best = max(
            total(workloads, set()) - total(workloads, set(choice))
            for choice in itertools.combinations("abcd", count)
        )
        if count == len(chosen):
            gained = total(workloads, set()) - total(workloads, chosen)
            assert gained >= (1 - 1 / 2.718281828) * best - 1e-9


@given(st.lists(scored, min_size=1, max_size=6), st.floats(0.01, 0.5))
def test_what_is_left_out_gains_too_little(workloads, least: float) -> None:
    chosen = choose_kernels(workloads, set(), least)
    for kernel in set("abcd") - chosen:
        gain = total(workloads, chosen) - total(workloads, chosen | {kernel})
        assert gain < least + 1e-9

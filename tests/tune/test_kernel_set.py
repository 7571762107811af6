"""Kernels to ship: the greedy choice against brute force, and what it promises."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.workload import Workload
from convoy.tune.kernel_set import BASELINE, MISSING, choose

KERNELS = [("cutlass", name) for name in "abcde"]
WORKLOADS = [Workload("fprop", n, 8, 8, 8, 8, 3, 3) for n in range(1, 7)]

times = st.fixed_dictionaries(
    {
        workload: st.dictionaries(
            st.sampled_from([BASELINE, *KERNELS]), st.floats(1, 50), min_size=1
        )
        for workload in WORKLOADS
    }
)


def slowdown(found, kernels):
    """Sum of log(time / best) with these kernels and cuDNN."""
    total = 0.0
    for by_kernel in found.values():
        best = min(by_kernel.values())
        known = [us for k, us in by_kernel.items() if k in kernels or k == BASELINE]
        total += math.log(
            min([*known, *([] if BASELINE in by_kernel else [MISSING * best])]) / best
        )
    return total


@settings(max_examples=200)
@given(times, st.integers(1, 4))
def test_gain_is_within_the_greedy_bound_of_the_optimum(found, most):
    steps = choose(found, most)
    nothing = slowdown(found, [])
    greedy = nothing - slowdown(found, [step.kernel for step in steps])
    optimum = nothing - min(
        slowdown(found, chosen) for chosen in itertools.combinations(KERNELS, most)
    )
    assert greedy >= (1 - 1 / math.e) * optimum - 1e-9
    assert greedy <= optimum + 1e-9


@given(times)
def test_every_workload_reaches_its_best_with_enough_kernels(found):
    steps = choose(found, len(KERNELS))
    assert slowdown(found, [step.kernel for step in steps]) <= 1e-9
    assert not steps or steps[-1].worst <= 1 + 1e-9
    for before, after in itertools.pairwise(steps):
        assert after.mean <= before.mean and after.worst <= before.worst


def test_order_of_the_records_does_not_matter():
    found = {
        WORKLOADS[0]: {BASELINE: 4.0, KERNELS[1]: 2.0, KERNELS[0]: 2.0},
        WORKLOADS[1]: {BASELINE: 4.0, KERNELS[0]: 3.0},
    }
    turned = {w: dict(reversed(found[w].items())) for w in reversed(found)}
    assert choose(found, 5) == choose(turned, 5)
    assert [step.kernel for step in choose(found, 5)] == [KERNELS[0]]

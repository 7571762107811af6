"""Which kernels to compile for a round: few that serve many workloads well.

A kernel costs half a minute of a core, so it must promise enough to all workloads together. With
``S`` the kernels at hand, a workload is worth the mean of the scores of its few best candidates
that ``S`` can run; the gain of a kernel is by how much it lowers the sum of these over the
workloads. The gains are submodular in ``S``, so the greedy choice is within 1 - 1/e of the best
(Nemhauser, Wolsey and Fisher 1978), and a gain computed for fewer kernels is an upper bound, which
saves most of the computing (Minoux 1978).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

#: Candidates of a workload that count: the expected best is not always the best.
DEPTH = 3
#: A workload without enough candidates at hand counts each missing one as this much worse than
#: the best (logarithm of time).
MISSING = 0.7

#: (kernel, score) of a workload's candidates; the kernel is empty where nothing is compiled.
Scored = Sequence[tuple[str, float]]


def choose_kernels(
    workloads: Sequence[Scored], at_hand: Collection[str], least_gain: float
) -> set[str]:
    """Kernels worth compiling beside those ``at_hand``, each of which gains at least so much."""
    have = [_best_of(scored, at_hand) for scored in workloads]
    serves: dict[str, dict[int, list[float]]] = {}
    for index, scored in enumerate(workloads):
        for kernel, score in scored:
            if kernel and kernel not in at_hand:
                serves.setdefault(kernel, {}).setdefault(index, []).append(score)

    def gain(kernel: str) -> float:
        return sum(
            _worth(have[index]) - _worth(_merged(have[index], scores))
            for index, scores in serves[kernel].items()
        )

    queue = [(-gain(kernel), kernel) for kernel in sorted(serves)]
    heapq.heapify(queue)
    chosen: set[str] = set()
    while queue:
        kernel = heapq.heappop(queue)[1]
        now = gain(kernel)
        if now < least_gain:
            continue
        if queue and now < -queue[0][0]:
            heapq.heappush(queue, (-now, kernel))
            continue
        chosen.add(kernel)
        for index, scores in serves[kernel].items():
            have[index] = _merged(have[index], scores)
    return chosen


def _best_of(scored: Scored, at_hand: Collection[str]) -> list[float]:
    found = [score for kernel, score in scored if not kernel or kernel in at_hand]
    lowest = min((score for _, score in scored), default=0.0)
    return _merged([lowest + MISSING] * DEPTH, found)


def _merged(scores: Sequence[float], others: Sequence[float]) -> list[float]:
    return sorted([*scores, *others])[:DEPTH]


def _worth(scores: Sequence[float]) -> float:
    return sum(scores) / DEPTH

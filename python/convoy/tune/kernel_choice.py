"""Select the kernels to compile for a round: few that serve many workloads well.

Compiling a kernel takes half a minute of a core, so its expected gain over all workloads must be
large enough. With ``S`` the compiled kernels, the cost of a workload is the mean score of its few
best candidates that ``S`` can run; the gain of a kernel is the decrease of the sum of these costs.
Gains are submodular in ``S``, so the greedy choice is within 1 - 1/e of the best (Nemhauser, Wolsey
and Fisher 1978), and a gain computed for fewer kernels is an upper bound, which saves most
evaluations (Minoux 1978).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

#: Candidates of a workload in its cost: the expected best is not always the best.
DEPTH = 3
#: Score of each candidate that a workload lacks, above its best one (logarithm of time).
MISSING = 0.7

#: (kernel, score) of a workload's candidates. The kernel is empty if nothing is compiled; the
#: score is the predicted logarithm of the time: lower is better.
Scores = Sequence[tuple[str, float]]


def choose_kernels(
    workloads: Sequence[Scores], compiled: Collection[str], least_gain: float
) -> set[str]:
    """Return kernels to compile in addition to the ``compiled`` ones, each with at least this
    gain."""
    best = [_best(scores, compiled) for scores in workloads]
    serves: dict[str, dict[int, list[float]]] = {}
    for index, scores in enumerate(workloads):
        for kernel, score in scores:
            if kernel and kernel not in compiled:
                serves.setdefault(kernel, {}).setdefault(index, []).append(score)

    def gain(kernel: str) -> float:
        return sum(
            _cost(best[index]) - _cost(_merged(best[index], own))
            for index, own in serves[kernel].items()
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
        for index, own in serves[kernel].items():
            best[index] = _merged(best[index], own)
    return chosen


def _best(scores: Scores, compiled: Collection[str]) -> list[float]:
    found = [score for kernel, score in scores if not kernel or kernel in compiled]
    lowest = min((score for _, score in scores), default=0.0)
    return _merged([lowest + MISSING] * DEPTH, found)


def _merged(scores: Sequence[float], others: Sequence[float]) -> list[float]:
    return sorted([*scores, *others])[:DEPTH]


def _cost(scores: Sequence[float]) -> float:
    return sum(scores) / DEPTH

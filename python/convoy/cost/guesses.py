"""The order in which candidates are measured while a budget lasts.

What records of similar workloads estimate to be fastest comes first, for all workloads, then each
backend's first guess, then the second ones; of equal guesses those for the workloads that take
longest. Over the shipped records (``scripts/bench_budget.py``: each network's own records hidden,
a hundred measurements for a network at one batch size) the sums of the networks' kernels are 2.4%
above the best (geometric mean; worst 9%), and 3.0% (17%) without the estimates and with the most
arithmetic first. With 25 measurements they are 5.6% and 7.0%.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import device_us
from ..ir.workload import Workload
from .nearest import least_us

Estimates = Callable[[Workload, Sequence[Candidate]], Sequence[Measurement | None]]


class Guess(NamedTuple):
    """A candidate to measure; ``rank`` is 0 for what records promise, 1 for first guesses."""

    rank: int
    workload: Workload
    candidate: Candidate


def in_order(
    pairs: Sequence[tuple[Workload, Candidate]], estimates: Estimates, device: Device
) -> list[Guess]:
    """Order candidates by how soon they should be measured; those of one workload and rank stay
    together, since they share its tensors."""
    promising = _promising(pairs, estimates)
    ranks: Counter[tuple[str, str]] = Counter()
    guesses = []
    for workload, candidate in sorted(pairs, key=lambda pair: (pair[1].priority, pair[1].key)):
        if promising.get(workload) == candidate:
            guesses.append(Guess(0, workload, candidate))
            continue
        ranks[workload.key, candidate.backend] += 1
        guesses.append(Guess(ranks[workload.key, candidate.backend], workload, candidate))
    return sorted(guesses, key=lambda g: (g.rank, -least_us(g.workload, device), g.workload.key))


def _promising(
    pairs: Sequence[tuple[Workload, Candidate]], estimates: Estimates
) -> dict[Workload, Candidate]:
    """The candidate of each workload with the least estimate, where there is any."""
    own: dict[Workload, list[Candidate]] = {}
    for workload, candidate in pairs:
        own.setdefault(workload, []).append(candidate)
    found = {}
    for workload, candidates in own.items():
        estimated = zip(estimates(workload, candidates), candidates, strict=True)
        if known := [(device_us(e), candidate) for e, candidate in estimated if e is not None]:
            found[workload] = min(known)[1]
    return found

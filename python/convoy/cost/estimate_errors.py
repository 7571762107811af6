"""Errors of estimates, and what measurements say about them.

The error of an estimate (the logarithm of the time over it) is a sum of normally distributed parts:
one of a backend for the workload, one of the kind of kernel (a cuDNN engine, a family), one of the
kind for the workload, one of the kernel for all workloads, and one of its own. Where cuDNN
rearranges tensors around an engine, all configurations of the engine are as much slower than the
records of similar workloads have it; a tile that suits a GPU does so for many workloads. A
measurement therefore corrects the estimates of all candidates that share a part with it. Estimates
for different backends have nothing in common: they come from other records, or from a kernel's own
model.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np

from ..ir.candidate import Candidate
from ..ir.workload import Workload

#: Standard deviations of the parts: of a backend for a workload, of a kind of kernel, of a kind for
#: a workload, of a kernel; and of what measurements of other candidates say nothing about. Over the
#: shipped records the choice hardly depends on them: other values between 0.2 and 0.6 change the
#: sums of ``scripts/bench_budget.py`` by up to 0.5%.
PARTS = (0.3, 0.3, 0.4, 0.3)
OWN = 0.3
_SWEEPS = 20
#: One for each of PARTS.
Groups = tuple[Hashable, ...]


def kind_of(backend: str, kernel: str) -> tuple[str, str]:
    """Return the kind of a kernel: its cuDNN engine, or its family."""
    return backend, kernel.split(".")[0].split("_")[0]


class Errors:
    """The expected errors of candidates, given those that were measured."""

    def __init__(self) -> None:
        self._errors: list[float] = []
        self._numbers: list[dict[Hashable, int]] = [{} for _ in PARTS]
        self._members: list[list[int]] = [[] for _ in PARTS]
        self._counts: list[np.ndarray] = [np.zeros(0) for _ in PARTS]
        self._expected: list[np.ndarray] = [np.zeros(0) for _ in PARTS]
        self._solved = 0

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, groups: Groups, error: float) -> None:
        """Add what was measured of a candidate of these groups."""
        self._errors.append(error)
        for numbers, members, group in zip(self._numbers, self._members, groups, strict=True):
            members.append(numbers.setdefault(group, len(numbers)))

    def expected(self, groups: Groups) -> tuple[float, float]:
        """Mean and standard deviation of the error of a candidate of these groups."""
        if self._solved < len(self._errors):
            self._solve()
        mean, variance = 0.0, OWN**2
        for i, group in enumerate(groups):
            number = self._numbers[i].get(group)
            count = 0.0 if number is None else float(self._counts[i][number])
            mean += 0.0 if number is None else float(self._expected[i][number])
            variance += PARTS[i] ** 2 / (1.0 + count * (PARTS[i] / OWN) ** 2)
        return mean, math.sqrt(variance)

    def _solve(self) -> None:
        """The most likely parts of all groups: one part after another, given the others."""
        members = [np.array(found) for found in self._members]
        self._counts = [np.bincount(found).astype(float) for found in members]
        self._expected = [np.zeros(len(counts)) for counts in self._counts]
        left = np.array(self._errors)
        for _ in range(_SWEEPS):
            for i, part in enumerate(PARTS):
                left += self._expected[i][members[i]]
                sums = np.bincount(members[i], left)
                self._expected[i] = sums / (self._counts[i] + (OWN / part) ** 2)
                left -= self._expected[i][members[i]]
        self._solved = len(self._errors)


def groups_of(workload: Workload, candidate: Candidate) -> Groups:
    """Return the groups of candidates that share parts of a candidate's error."""
    kind = kind_of(candidate.backend, candidate.kernel)
    own = candidate.backend, candidate.kernel
    return (workload.key, candidate.backend), kind, (workload.key, kind), own

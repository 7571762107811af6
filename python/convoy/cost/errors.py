"""Errors of estimates, and what measurements say about them.

The error of an estimate (the logarithm of the time over it) is a sum of normally distributed parts:
one of the workload, one of the kind of kernel (a cuDNN engine, a family), one of that kind for the
workload, one of the kernel for all workloads, and one of its own. Where cuDNN rearranges tensors
around an engine, all configurations of the engine are as much slower than the records of similar
workloads have it; where a tile suits a GPU, it does for many workloads. A measurement therefore
corrects the estimates of all candidates that share a part with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from ..ir.candidate import Candidate
from ..ir.workload import Workload

#: Standard deviations of the parts: of a workload, of a kind of kernel, of a kind for a workload,
#: of a kernel; and of what measurements of other candidates say nothing about. Chosen by
#: ``scripts/bench_budget.py``.
PARTS = (0.3, 0.3, 0.4, 0.3)
OWN = 0.3


def kind_of(backend: str, kernel: str) -> tuple[str, str]:
    """What kernels have in common: a cuDNN engine, or a family of kernels."""
    return backend, kernel.split(".")[0].split("_")[0]


class Errors:
    """The expected errors of candidates, given those that were measured."""

    def __init__(self) -> None:
        self._measured: list[tuple[Hashable, ...]] = []
        self._errors: list[float] = []
        self._weights: list[dict[Hashable, float]] | None = None
        self._counts: list[dict[Hashable, int]] = [defaultdict(int) for _ in PARTS]

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, workload: Workload, candidate: Candidate, error: float) -> None:
        """Add what was measured."""
        groups = _groups(workload, candidate)
        self._measured.append(groups)
        self._errors.append(error)
        self._weights = None
        for counts, group in zip(self._counts, groups, strict=True):
            counts[group] += 1

    def expected(self, workload: Workload, candidate: Candidate) -> tuple[float, float]:
        """Mean and standard deviation of a candidate's error."""
        groups = _groups(workload, candidate)
        if self._weights is None:
            self._weights = self._solved()
        mean = sum(own.get(group, 0.0) for own, group in zip(self._weights, groups, strict=True))
        variance = OWN**2
        for counts, group, part in zip(self._counts, groups, PARTS, strict=True):
            variance += part**2 / (1.0 + counts.get(group, 0) * (part / OWN) ** 2)
        return mean, math.sqrt(variance)

    def _solved(self) -> list[dict[Hashable, float]]:
        """For each part the expected error of each group that has a measurement."""
        count = len(self._errors)
        covariance = OWN**2 * np.eye(count)
        columns = list(zip(*self._measured, strict=True)) or [()] * len(PARTS)
        numbered = [_numbered(column) for column in columns]
        for part, numbers in zip(PARTS, numbered, strict=True):
            covariance += part**2 * (numbers[:, None] == numbers[None, :])
        alphas = np.linalg.solve(covariance, np.array(self._errors)) if count else np.zeros(0)
        found: list[dict[Hashable, float]] = []
        for part, column in zip(PARTS, columns, strict=True):
            own: dict[Hashable, float] = defaultdict(float)
            for group, alpha in zip(column, alphas, strict=True):
                own[group] += part**2 * float(alpha)
            found.append(own)
        return found


def _groups(workload: Workload, candidate: Candidate) -> tuple[Hashable, ...]:
    """What a candidate shares its parts of the error with."""
    kind = kind_of(candidate.backend, candidate.kernel)
    return workload, kind, (workload, kind), (candidate.backend, candidate.kernel)


def _numbered(groups: Sequence[Hashable]) -> np.ndarray:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=int)

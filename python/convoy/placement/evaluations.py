"""Fitness of the individuals of an evolutionary search."""

from __future__ import annotations

import math
from collections.abc import Sequence

Genes = tuple[int, ...]


class Evaluations:
    """Fitness in microseconds by genes. A failure is kept as infinity: it is not tried again."""

    def __init__(self) -> None:
        self._known: dict[Genes, float] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, genes: Sequence[int]) -> float | None:
        """Fitness if known."""
        return self._known.get(tuple(genes))

    def best(self) -> tuple[Genes, float]:
        """Lowest fitness; of equals the one evaluated first."""
        genes = min(self._known, key=self._known.__getitem__)
        return genes, self._known[genes]

    def ranked(self) -> list[tuple[Genes, float]]:
        """Return all evaluated individuals, lowest fitness first; ties in order of evaluation."""
        finite = [(genes, us) for genes, us in self._known.items() if not math.isinf(us)]
        return sorted(finite, key=lambda item: item[1])

    def add(self, genes: Sequence[int], fitness: float) -> None:
        """Store one evaluation."""
        self._known[tuple(genes)] = fitness

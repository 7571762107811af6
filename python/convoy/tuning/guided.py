"""The search that a cost model guides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..backends.base import Candidate, Device
from .model import RankingModel, Sample
from .search import Search
from .task import Task

#: How many standard deviations below its expectation a candidate is judged: the less is known of
#: it, the more it may turn out to be the best.
OPTIMISM = 1.0
#: What a kernel that is not compiled yet must be better by (logarithm of time) to be tried.
NEW_KERNEL = 0.03
#: Weight of the workloads at hand beside those of ``prior``.
OWN_WEIGHT = 3.0


class ModelGuided(Search):
    """Measures what the model expects to be fast or knows little of.

    ``prior`` are figures of other workloads to learn from; ``kernel`` names what must be compiled
    for a candidate. Without any figures it starts with the backends' own order.
    """

    name = "model"

    def __init__(
        self,
        device: Device,
        prior: Iterable[Sample] = (),
        kernel: Callable[[Candidate], str] = lambda candidate: "",
        seed: int = 0,
        members: int = 4,
    ) -> None:
        self._model = RankingModel(device, members, seed)
        self._prior = list(prior)
        self._kernel = kernel
        self._kernels: set[str] = set()

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        own = [Sample(task.workload, tuple(task.results.values())) for task in tasks]
        self._model.fit([*self._prior, *own], {task.workload: OWN_WEIGHT for task in tasks})
        return [self._pick(task, count) for task in tasks]

    def _pick(self, task: Task, count: int) -> list[Candidate]:
        remaining = task.remaining()
        if not remaining:
            return []
        if not self._model.trained:
            remaining.sort(key=lambda c: (c.priority, c.backend))
            return remaining[:count]
        prediction = self._model.predict(task.workload, remaining)
        scores = prediction.mean - OPTIMISM * prediction.deviation
        picked: list[Candidate] = []
        for index in np.argsort(scores + self._penalties(remaining), kind="stable")[:count]:
            picked.append(remaining[index])
            self._kernels.add(self._kernel(remaining[index]))
        return picked

    def _penalties(self, candidates: Sequence[Candidate]) -> np.ndarray:
        names = [self._kernel(candidate) for candidate in candidates]
        return np.array([NEW_KERNEL * bool(n and n not in self._kernels) for n in names])

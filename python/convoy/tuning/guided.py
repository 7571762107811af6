"""The search that a cost model guides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..backends.base import Candidate, Device
from .model import Array, RankingModel, Sample
from .search import Search
from .task import Task

#: How many standard deviations below its expectation a candidate is judged: the less is known of
#: it, the more it may turn out to be the best.
OPTIMISM = 1.0
#: What a kernel that nothing has needed yet must be better by (logarithm of time) to be tried,
#: divided by the number of workloads that would try it next: it takes half a minute of a core.
NEW_KERNEL = 0.2
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
        remaining = [task.remaining() for task in tasks]
        if not self._model.trained:
            return [sorted(r, key=lambda c: (c.priority, c.backend))[:count] for r in remaining]
        scores = [self._scores(task, left) for task, left in zip(tasks, remaining, strict=True)]
        wanted: Counter[str] = Counter()
        for left, score in zip(remaining, scores, strict=True):
            wanted.update({self._kernel(left[i]) for i in np.argsort(score, kind="stable")[:count]})
        picks = []
        for left, score in zip(remaining, scores, strict=True):
            order = np.argsort(score + self._penalties(left, wanted), kind="stable")[:count]
            picks.append([left[i] for i in order])
        self._kernels.update(self._kernel(c) for picked in picks for c in picked)
        return picks

    def _scores(self, task: Task, candidates: Sequence[Candidate]) -> Array:
        """An optimistic guess of each time, lower for better."""
        if not candidates:
            return np.zeros(0)
        prediction = self._model.predict(task.workload, candidates)
        return prediction.mean - OPTIMISM * prediction.deviation

    def _penalties(self, candidates: Sequence[Candidate], wanted: Counter[str]) -> Array:
        names = [self._kernel(candidate) for candidate in candidates]
        return np.array(
            [NEW_KERNEL / max(1, wanted[n]) if n and n not in self._kernels else 0.0 for n in names]
        )

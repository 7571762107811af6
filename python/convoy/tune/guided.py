"""The search guided by a cost model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.workload import Workload
from ..records.record import candidate_key
from .kernel_choice import Scores, choose_kernels
from .search import Search
from .task import Task

if TYPE_CHECKING:  # NumPy and xgboost are loaded by runs that measure only
    from ..cost.ranking import RankingModel, Sample

#: Standard deviations subtracted from a candidate's predicted time (lower confidence bound).
OPTIMISM = 1.0
#: Least gain of a kernel to compile over all workloads (see kernel_choice.py): one of them by 5%,
#: or ten by half a percent.
NEW_KERNEL = 0.05
#: Weight of the tuned workloads relative to those of ``prior``.
OWN_WEIGHT = 3.0


class ModelGuided(Search):
    """Measures candidates that the model predicts to be fast, or is uncertain of.

    Without any measurement to learn from, it starts with the backends' own order.

    Args:
        device: The GPU, or a function that returns it.
        prior: Measurements of other workloads to learn from, or a function that returns them.
        kernel: Names the library to compile for a candidate; empty for none.
        seed: Of the model.
    """

    name = "model"

    def __init__(
        self,
        device: Device | Callable[[], Device],
        prior: Iterable[Sample] | Callable[[], Iterable[Sample]] = (),
        kernel: Callable[[Candidate], str] = lambda candidate: "",
        seed: int = 0,
    ) -> None:
        # Both are made when they are first needed: a run may find all it wants in records.
        self._make_model = functools.cache(lambda: _model(device, seed))
        self._make_prior = functools.cache(lambda: list(prior() if callable(prior) else prior))
        self._kernel = kernel
        self._kernels: set[str] = set()
        self._tasks: dict[Workload, Task] = {}
        self._learnt = -1  # results of these tasks that the model is trained on

    def begin(self) -> None:
        self._make_model().fit(self._make_prior())
        self._learnt = 0

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        self._tasks.update((task.workload, task) for task in tasks)  # finished ones still count
        self._learn()
        if not self._make_model().trained:
            remaining = [task.remaining() for task in tasks]
            return [sorted(r, key=lambda c: (c.priority, c.backend))[:count] for r in remaining]
        scores = [self._scores(task) for task in tasks]
        self._kernels |= choose_kernels(scores, self._kernels, NEW_KERNEL)
        return [
            _choose(task, self._ranked(task, scored), count)
            for task, scored in zip(tasks, scores, strict=True)
        ]

    def _learn(self) -> None:
        """Train the model again where there are new results."""
        from ..cost.ranking import Sample

        results = sum(len(task.results) for task in self._tasks.values())
        if results == self._learnt:
            return
        own = [
            Sample(w, tuple((o.candidate, o.measurement) for o in task.results.values()))
            for w, task in self._tasks.items()
        ]
        weights = dict.fromkeys(self._tasks, OWN_WEIGHT)
        self._make_model().fit([*self._make_prior(), *own], weights)
        self._learnt = results

    def _ranked(self, task: Task, scores: Scores) -> list[Candidate]:
        """Return the remaining candidates whose kernels are compiled or chosen, best first."""
        left = {candidate_key(candidate) for candidate in task.remaining()}
        usable = [
            (score, i)
            for i, (kernel, score) in enumerate(scores)
            if candidate_key(task.space.candidates[i]) in left
            and (not kernel or kernel in self._kernels)
        ]
        return [task.space.candidates[i] for _, i in sorted(usable)]

    def _scores(self, task: Task) -> list[tuple[str, float]]:
        """Return (kernel, optimistic prediction) of all candidates, measured or not."""
        candidates = task.space.candidates
        if not candidates:
            return []
        prediction = self._make_model().predict(task.workload, candidates)
        predicted = prediction.mean - OPTIMISM * prediction.deviation
        return [(self._kernel(c), float(p)) for c, p in zip(candidates, predicted, strict=True)]


def _model(device: Device | Callable[[], Device], seed: int) -> RankingModel:
    from ..cost.ranking import RankingModel

    return RankingModel(device if isinstance(device, Device) else device(), seed=seed)


def _choose(task: Task, ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return the first candidates, the last of which explores once there are results.

    It is the first of a kind that was not measured for this workload: the model would never learn
    that it is wrong about a kind that it predicts to be slow.
    """
    from ..cost.features import kind

    chosen = list(ranked[:count])
    if not task.results or len(ranked) <= count or count < 2:
        return chosen
    seen = {kind(offer.candidate) for offer in task.results.values()}
    seen |= {kind(candidate) for candidate in chosen[:-1]}
    another = next((c for c in ranked[count - 1 :] if kind(c) not in seen), chosen[-1])
    return [*chosen[:-1], another]

"""The search that a cost model guides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.workload import Workload
from ..records.record import candidate_key
from .kernel_choice import choose_kernels
from .search import Search
from .task import Task

if TYPE_CHECKING:  # the model needs NumPy and xgboost, a run that measures nothing no model
    from ..cost.ranking import RankingModel, Sample

#: How many standard deviations below its expectation a candidate is judged: the less is known of
#: it, the more it may turn out to be the best.
OPTIMISM = 1.0
#: What a kernel to compile must promise to all workloads together (see kernel_choice.py): one of
#: them by 5%, or ten by half a percent.
NEW_KERNEL = 0.05
#: Weight of the workloads at hand beside those of ``prior``.
OWN_WEIGHT = 3.0


class ModelGuided(Search):
    """Measures what the model expects to be fast or knows little of.

    ``prior`` are figures of other workloads to learn from; it and ``device`` may be functions that
    give them. ``kernel`` names what must be compiled for a candidate. Without any figures it starts
    with the backends' own order.
    """

    name = "model"

    def __init__(
        self,
        device: Device | Callable[[], Device],
        prior: Iterable[Sample] | Callable[[], Iterable[Sample]] = (),
        kernel: Callable[[Candidate], str] = lambda candidate: "",
        seed: int = 0,
        members: int = 4,
    ) -> None:
        # Both are made when they are first needed: a run may find all it wants in records.
        self._make_model = functools.cache(lambda: _model(device, members, seed))
        self._make_prior = functools.cache(lambda: list(prior() if callable(prior) else prior))
        self._kernel = kernel
        self._kernels: set[str] = set()
        self._tasks: dict[Workload, Task] = {}
        self._learnt = -1  # results of the tasks at hand that the model has seen

    def begin(self) -> None:
        self._make_model().fit(self._make_prior())
        self._learnt = 0

    def pick(self, tasks: Sequence[Task], count: int) -> list[list[Candidate]]:
        self._tasks.update((task.workload, task) for task in tasks)  # those that ended stay known
        from ..cost.ranking import Sample

        own = [Sample(w, tuple(task.results.values())) for w, task in self._tasks.items()]
        model = self._make_model()
        results = sum(len(sample.figures) for sample in own)
        if results != self._learnt:
            model.fit([*self._make_prior(), *own], dict.fromkeys(self._tasks, OWN_WEIGHT))
            self._learnt = results
        remaining = [task.remaining() for task in tasks]
        if not model.trained:
            return [sorted(r, key=lambda c: (c.priority, c.backend))[:count] for r in remaining]
        scores = [self._scores(task) for task in tasks]
        self._kernels |= choose_kernels(scores, self._kernels, NEW_KERNEL)
        picks = []
        for task, scored in zip(tasks, scores, strict=True):
            left = {candidate_key(c) for c in task.remaining()}
            usable = [
                (score, i)
                for i, (c, (kernel, score)) in enumerate(
                    zip(task.space.candidates, scored, strict=True)
                )
                if candidate_key(c) in left and (not kernel or kernel in self._kernels)
            ]
            ranked = [task.space.candidates[i] for _, i in sorted(usable)]
            picks.append(_choose(task, ranked, count))
        return picks

    def _scores(self, task: Task) -> list[tuple[str, float]]:
        """(kernel to compile, optimistic guess of the time) of all candidates, measured or not."""
        candidates = task.space.candidates
        if not candidates:
            return []
        prediction = self._make_model().predict(task.workload, candidates)
        guesses = prediction.mean - OPTIMISM * prediction.deviation
        return [(self._kernel(c), float(g)) for c, g in zip(candidates, guesses, strict=True)]


def _model(device: Device | Callable[[], Device], members: int, seed: int) -> RankingModel:
    from ..cost.ranking import RankingModel

    return RankingModel(device if isinstance(device, Device) else device(), members, seed)


def _choose(task: Task, ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """The first candidates, and once there are results, in place of the last the first of a kind
    that was not measured for this workload: what the model thinks bad, and never sees, it would go
    on thinking bad."""
    from ..cost.features import kind

    chosen = list(ranked[:count])
    if not task.results or len(ranked) <= count or count < 2:
        return chosen
    seen = {kind(candidate) for candidate, _ in task.results.values()}
    seen |= {kind(candidate) for candidate in chosen[:-1]}
    another = next((c for c in ranked[count - 1 :] if kind(c) not in seen), chosen[-1])
    return [*chosen[:-1], another]

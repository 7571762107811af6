"""Boosted trees that rank the candidates of an unmeasured workload.

The target is the logarithm of a candidate's time over the best of its workload, which transfers
from one network to another. Several models are trained, each without some of the workloads
(bagging); their standard deviation is the uncertainty of a prediction.
"""

from __future__ import annotations

import concurrent.futures
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .. import paths
from ..errors import LibraryMissing
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from . import features

if TYPE_CHECKING:
    import xgboost

Array = np.ndarray
_Examples = tuple[Array, Array, Array]  # features, targets and weights of a workload's candidates

#: Times beyond this multiple of the best are all the same: useless.
SLOWEST = 8.0
PARAMETERS: dict[str, object] = {
    "objective": "reg:squarederror",
    "max_depth": 8,
    "eta": 0.15,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "min_child_weight": 2,
    "tree_method": "hist",
    "verbosity": 0,
}
ROUNDS = 120
#: Share of the workloads that each member is trained without.
LEFT_OUT = 0.25


@dataclass(frozen=True)
class Sample:
    """The measured candidates of one workload."""

    workload: Workload
    measurements: tuple[tuple[Candidate, Measurement], ...]


@dataclass(frozen=True)
class Prediction:
    """For each candidate the expected logarithm of its time over the workload's best, and the
    standard deviation of the ensemble; both of shape (candidates,)."""

    mean: Array
    deviation: Array


class RankingModel:
    """An ensemble of ``members`` boosted models. Deterministic for one ``seed``.

    Raises LibraryMissing without xgboost.
    """

    def __init__(self, device: Device, members: int = 4, seed: int = 0) -> None:
        self._xgboost = load_xgboost("for the cost model")
        self._device, self._seed = device, seed
        self._members = members
        self._models: list[xgboost.Booster] = []
        self._rows: dict[tuple[str, str, str], Array] = {}

    @property
    def trained(self) -> bool:
        return bool(self._models)

    def fit(
        self, samples: Iterable[Sample], weights: Mapping[Workload, float] | None = None
    ) -> None:
        """Train on workloads of which at least two candidates ran. ``weights`` raises the weight
        of some workloads (default 1)."""
        by_key = sorted(samples, key=lambda sample: sample.workload.key)
        found = (self._examples(s, (weights or {}).get(s.workload, 1.0)) for s in by_key)
        examples = [example for example in found if example is not None]
        self._models = []
        if len(examples) < 2:
            return
        # Trees are the same for any number of threads. No compiler runs meanwhile, since a round
        # has its results before the next is chosen.
        threads = max(1, len(os.sched_getaffinity(0)) // self._members)
        train = functools.partial(self._train, examples, threads)
        with concurrent.futures.ThreadPoolExecutor(self._members) as pool:
            self._models = list(pool.map(train, range(self._members)))

    def _examples(self, sample: Sample, weight: float) -> _Examples | None:
        """The examples of a workload; None if fewer than two candidates ran."""
        usable = [(c, log) for c, log in relative(sample.measurements) if math.isfinite(log)]
        if len(usable) < 2:
            return None
        usable.sort(key=lambda item: (item[0].key, item[0].config))
        logs = np.array([log for _, log in usable])
        # Telling the best few apart matters, telling bad from worse does not.
        importance = weight * (0.1 + np.exp(-3 * logs))
        return self._features(sample.workload, [c for c, _ in usable]), logs, importance

    def _train(self, examples: Sequence[_Examples], threads: int, member: int) -> xgboost.Booster:
        rng = np.random.default_rng((self._seed, member))
        left_out = rng.random(len(examples)) < (LEFT_OUT if self._members > 1 else 0.0)
        kept = [example for example, out in zip(examples, left_out, strict=True) if not out]
        x, y, importance = map(np.concatenate, zip(*(kept or examples), strict=True))
        data = self._xgboost.DMatrix(x, y, weight=importance, nthread=1)
        options = {**PARAMETERS, "seed": self._seed + member, "nthread": threads}
        return self._xgboost.train(options, data, ROUNDS)

    def predict(self, workload: Workload, candidates: Sequence[Candidate]) -> Prediction:
        """Predictions for a workload that need not have been seen. Call :meth:`fit` first."""
        data = self._xgboost.DMatrix(self._features(workload, candidates), nthread=1)
        answers = np.stack([model.predict(data) for model in self._models])
        return Prediction(answers.mean(axis=0), answers.std(axis=0))

    def _features(self, workload: Workload, candidates: Sequence[Candidate]) -> Array:
        """Features, computed once for each candidate."""
        keys = [(workload.key, c.key, c.config) for c in candidates]
        missing = [c for key, c in zip(keys, candidates, strict=True) if key not in self._rows]
        if missing:
            for candidate, row in zip(
                missing, features.matrix(workload, missing, self._device), strict=True
            ):
                self._rows[workload.key, candidate.key, candidate.config] = row
        return np.stack([self._rows[key] for key in keys])


def relative(
    measurements: Sequence[tuple[Candidate, Measurement]],
) -> list[tuple[Candidate, float]]:
    """Logarithm of each time over the best, at most log(SLOWEST), which failures get as well."""
    times = [m.kernel_us for _, m in measurements if m.ok and m.kernel_us is not None]
    if not times:
        return []
    best = min(times)

    def log(measurement: Measurement) -> float:
        if not measurement.ok or measurement.kernel_us is None:
            return math.log(SLOWEST)
        return math.log(min(SLOWEST, measurement.kernel_us / best))

    return [(candidate, log(measurement)) for candidate, measurement in measurements]


def load_xgboost(purpose: str) -> ModuleType:
    """Import xgboost; raises LibraryMissing with the purpose if it is not installed."""
    try:
        import xgboost
    except ImportError as err:
        raise LibraryMissing(
            f"no xgboost ({err})", f"xgboost, {purpose}", paths.install_command("tune")
        ) from None
    return xgboost

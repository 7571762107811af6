"""Cost model that predicts unrecorded measurements from records of other workloads.

Boosted trees (xgboost) on the features of ``cost.features`` predict the logarithms of the three
costs, and of the slowdown with a flushed cache. Recorded measurements are used as they are. A
prediction has the error on workloads outside the training set as its spread, so that placement
treats candidates that it cannot distinguish as ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidOption
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from . import features
from .model import CostModel
from .ranking import Array, load_xgboost

if TYPE_CHECKING:
    import xgboost

    from ..records.record import Record

SIDES = ("kernel_us", "enqueue_us", "e2e_us")
ROUNDS = 150
PARAMETERS: dict[str, object] = {
    "objective": "reg:squarederror",
    "max_depth": 7,
    "eta": 0.12,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "min_child_weight": 2,
    "tree_method": "hist",
    "verbosity": 0,
    "seed": 0,
}
#: Minimum number of workloads to train on.
FEWEST_WORKLOADS = 8
_FOLDS = 4


class PredictedCost(CostModel):
    """Predicts for one device, learning from ``records`` of that GPU; ``known`` comes first.

    ``errors`` is the mean absolute error of the logarithm by side, on workloads that were left
    out for that purpose (about the relative error). Deterministic. Raises LibraryMissing without
    xgboost, InvalidOption where the records of the GPU hold fewer than FEWEST_WORKLOADS workloads
    of every operation. An operation of which they hold fewer is not predicted.
    """

    source = "predicted"
    estimating = True

    def __init__(
        self,
        records: Iterable[Record],
        device: Device,
        known: CostModel | None = None,
        rounds: int = ROUNDS,
        threads: int = 0,
    ) -> None:
        self._xgboost = load_xgboost("to predict costs")
        self._rounds, self._threads = rounds, threads
        self._device, self._known = device, known
        used = [r for r in records if r.environment.gpu == device.name and r.measurement.ok]
        used.sort(key=lambda r: (r.workload.key, r.candidate.key, r.time))
        groups: dict[Workload, list[Record]] = {}
        for record in used:
            groups.setdefault(record.workload, []).append(record)
        count = Counter(workload.op for workload in groups)
        self._learnt = {op for op in count if count[op] >= FEWEST_WORKLOADS}
        groups = {w: group for w, group in groups.items() if w.op in self._learnt}
        if not groups:
            raise InvalidOption(
                f"records of {sum(count.values())} workloads on {device.name}",
                f"{FEWEST_WORKLOADS} or more of one operation to learn from",
                "Measure some first (convoy tune), or place from other costs",
            )
        rows, targets, fold = [], [], []
        for i, (workload, group) in enumerate(groups.items()):
            candidates = [record.candidate for record in group]
            rows.append(features.matrix(workload, candidates, device))
            targets += [[_log(record.measurement, side) for side in SIDES] for record in group]
            fold += [i % _FOLDS] * len(group)
        x, y = np.concatenate(rows), np.array(targets)
        self.errors = self._left_out(x, y, np.array(fold))
        self._models = [self._fit(x, y[:, i]) for i in range(len(SIDES))]
        cold = np.array(
            [_log(r.measurement, "cold_us") for group in groups.values() for r in group]
        )
        # How much longer with an empty cache: a ratio, so that it never is less than one.
        self._cold = self._fit(x, cold - y[:, 0]) if np.isfinite(cold).any() else None

    def _fit(self, x: Array, y: Array) -> xgboost.Booster:
        there = np.isfinite(y)
        data = self._xgboost.DMatrix(x[there], y[there])
        options = {**PARAMETERS, "nthread": self._threads}
        return self._xgboost.train(options, data, self._rounds)

    def _left_out(self, x: Array, y: Array, fold: Array) -> dict[str, float]:
        """Error on every fourth workload of trees that have not seen it."""
        found = {}
        for i, side in enumerate(SIDES):
            test = (fold == 0) & np.isfinite(y[:, i])
            model = self._fit(x[fold != 0], y[fold != 0, i])
            misses = abs(model.predict(self._xgboost.DMatrix(x[test])) - y[test, i])
            found[side] = float(np.mean(misses)) if len(misses) else math.inf
        return found

    def candidates(self, workload: Workload) -> list[Candidate]:
        return self._known.candidates(workload) if self._known else []

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        if not candidates:
            return []
        known: list[Measurement | None] = [None] * len(candidates)
        if self._known is not None:
            known = self._known.measurements(workload, candidates)
        if workload.op not in self._learnt:
            return known
        data = self._xgboost.DMatrix(features.matrix(workload, candidates, self._device))
        columns = [np.exp(model.predict(data)) for model in self._models]
        ratios = None if self._cold is None else np.exp(self._cold.predict(data))
        return [
            measurement
            if measurement is not None
            else self._predicted(
                [float(c[i]) for c in columns], None if ratios is None else float(ratios[i])
            )
            for i, measurement in enumerate(known)
        ]

    def _predicted(self, values: Sequence[float], ratio: float | None) -> Measurement:
        kernel, enqueue, e2e = values
        spreads = [v * min(1.0, self.errors[side]) for side, v in zip(SIDES, values, strict=True)]
        return Measurement(
            kernel_us=kernel,
            kernel_spread_us=spreads[0],
            cold_us=None if ratio is None else kernel * max(1.0, ratio),
            enqueue_us=enqueue,
            enqueue_spread_us=spreads[1],
            e2e_us=e2e,
            e2e_spread_us=spreads[2],
        )


def _log(measurement: Measurement, side: str) -> float:
    value = getattr(measurement, side)
    return math.log(value) if value else math.nan

"""A cost model that needs no GPU and no records."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

from convoy.cost.model import CostModel
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload


class RandomCost(CostModel):
    """Reproducible random measurements: placement is tested without a GPU."""

    source = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        results: list[Measurement | None] = []
        for candidate in candidates:
            text = f"{self._seed}|{workload.key}|{candidate.key}"
            rng = random.Random(zlib.crc32(text.encode()))
            kernel, host = rng.uniform(2, 50), rng.uniform(2, 12)
            results.append(
                Measurement(
                    kernel_us=kernel,
                    kernel_spread_us=0.01 * kernel,
                    enqueue_us=host,
                    enqueue_spread_us=0.1,
                    e2e_us=max(kernel, host) + rng.uniform(4, 15),
                    e2e_spread_us=0.3,
                    samples=1,
                )
            )
        return results

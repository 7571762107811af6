"""Choose which compiled kernels a package ships: few of them, near the best for many workloads.

Greedy cover: cuDNN alone is the start, then the kernel comes in whose presence lowers the sum of
log(time / best time) over all recorded workloads the most. The sum is submodular in the set of
kernels, so the greedy choice is within 1 - 1/e of the optimum (Nemhauser, Wolsey, Fisher 1978).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ir.candidate import Candidate, make_config
from ..ir.objective import device_us
from ..ir.workload import Workload
from ..records.record import Record

#: A compiled kernel: the name of its backend and its description as canonical JSON.
Kernel = tuple[str, str]
#: Always available: any plan of cuDNN.
BASELINE: Kernel = ("cudnn", "")
#: A workload that no available kernel runs counts as this many times slower than its best.
MISSING = 10.0


@dataclass(frozen=True)
class Step:
    """A selected kernel, and the distance of the set so far from the best of every workload.

    ``mean`` is the geometric mean and ``worst`` the maximum of time over best time.
    """

    kernel: Kernel
    mean: float
    worst: float


def times_by_kernel(records: Iterable[Record]) -> dict[Workload, dict[Kernel, float]]:
    """Least time of each kernel for each workload, in microseconds, as inside a network."""
    times: dict[Workload, dict[Kernel, float]] = {}
    for record in records:
        if not record.measurement.ok or not record.measurement.kernel_us:
            continue
        found = times.setdefault(record.workload, {})
        kernel, us = kernel_of(record.candidate), device_us(record.measurement)
        found[kernel] = min(us, found.get(kernel, math.inf))
    return times


def kernel_of(candidate: Candidate) -> Kernel:
    """Return the compiled kernel that a candidate launches; BASELINE for one of cuDNN's."""
    if candidate.backend == BASELINE[0]:
        return BASELINE
    return candidate.backend, make_config(**candidate.kernel_fields())


def choose(times: Mapping[Workload, Mapping[Kernel, float]], most: int) -> list[Step]:
    """Choose at most ``most`` kernels in order of their gain; stop where none has any.

    Ties go to the kernel whose (backend, description) sorts first, so that equal records give
    equal choices.
    """
    best = {workload: min(found.values()) for workload, found in times.items()}
    now = {w: found.get(BASELINE, MISSING * best[w]) for w, found in times.items()}
    runs: dict[Kernel, list[tuple[Workload, float]]] = {}
    for workload, found in times.items():
        for kernel, us in found.items():
            runs.setdefault(kernel, []).append((workload, us))
    runs.pop(BASELINE, None)
    steps: list[Step] = []

    def gain(kernel: Kernel) -> float:
        return sum(math.log(now[w] / us) for w, us in runs[kernel] if us < now[w])

    while runs and len(steps) < most:
        kernel = max(sorted(runs), key=gain)
        if gain(kernel) <= 0:
            break
        for workload, us in runs.pop(kernel):
            now[workload] = min(now[workload], us)
        ratios = [now[w] / best[w] for w in now]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        steps.append(Step(kernel, mean, max(ratios)))
    return steps

#!/usr/bin/env python3
"""Compare what a build would choose with the records' best, where records are hidden. No GPU.

    python scripts/bench_budget.py --each 0.05
    python scripts/bench_budget.py --networks resnet50 googlenet --each 0.2 --out budget.json

The workloads of a network at one batch size are placed with the candidates that the records hold
and that are compiled: by cuDNN's first guess, by the records of the other networks alone (near),
and as MeasuredCost measures them within a budget in which one measurement takes ``--each`` seconds,
with the records of the other networks (budget) and without any (unknown GPU). Two numbers stand for
the time of the choice over that of the best candidate, the geometric mean and the worst, and one
for the sum of all workloads' times over the sum of the best.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from convoy import Device, paths
from convoy.backends import registry
from convoy.cost.measured import MeasuredCost
from convoy.cost.nearest import Neighbours
from convoy.cost.recorded import RecordedCost
from convoy.ir.candidate import Candidate
from convoy.ir.defaults import BUDGET_S
from convoy.ir.measurement import Measurement
from convoy.ir.objective import device_us
from convoy.ir.workload import Workload
from convoy.records.environment import for_device
from convoy.records.record import HostSample
from convoy.records.store import RecordStore

#: Measurements of a network's workloads by candidate.
Times = dict[Workload, dict[Candidate, Measurement]]
_NAME = re.compile(r"h200-(\w+)-(?:fprop|dgrad|wgrad|training)-")


class Estimated(RecordedCost):
    """Knows of no candidate; estimates by records of other workloads."""

    def __init__(self, near: Neighbours | None) -> None:
        super().__init__(RecordStore([]), for_device(Device()))
        self._near = near

    def estimates(self, workload: Workload, candidates: Sequence[Candidate]):  # type: ignore[no-untyped-def]
        if self._near is None:
            return [None] * len(candidates)
        return self._near.estimates(workload, candidates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="*", help="default: all with shipped records")
    parser.add_argument("--budget", type=float, default=BUDGET_S)
    parser.add_argument("--each", type=float, default=0.05, help="seconds of one measurement")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    networks, samples = read(paths.records_dir())
    rows: list[dict[str, Any]] = []
    ratios: dict[Any, list[float]] = defaultdict(list)
    sums: dict[Any, list[float]] = defaultdict(list)
    for name, times in networks.items():
        if options.networks and name not in options.networks:
            continue
        near = Neighbours(sorted(set(samples) - set(times)), samples.__getitem__, Device())
        for batch in sorted({workload.n for workload in times}):
            own = {workload: found for workload, found in times.items() if workload.n == batch}
            found = compare(own, near, options.budget, options.each)
            total = {rule: times_over_best(own, choices) for rule, choices in found.items()}
            each_one = {rule: ratios_to_best(own, choices) for rule, choices in found.items()}
            rows.append({"network": name, "N": batch, "workloads": len(own)})
            rows[-1] |= {rule: [*summary(each_one[rule]), total[rule]] for rule in found}
            print(json.dumps(rows[-1]), flush=True)
            for rule in found:
                ratios[rule] += each_one[rule]
                sums[rule].append(total[rule])
    rows.append({"network": "all", "workloads": len(ratios["near"])})
    rows[-1] |= {rule: [*summary(ratios[rule]), *summary(sums[rule])] for rule in ratios}
    print(json.dumps(rows[-1]))
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1))


def read(folder: Path) -> tuple[dict[str, Times], dict[Workload, list[HostSample]]]:
    """Measurements of compiled candidates by network, and all samples by workload."""
    networks: dict[str, Times] = defaultdict(lambda: defaultdict(dict))
    samples: dict[Workload, list[HostSample]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.gz")):
        name = _NAME.match(path.name)
        for record in RecordStore(path):
            if name and (sample := record.host_sample()) is not None:
                samples[record.workload].append(sample)
                if registry.get(record.candidate.backend).is_ready(record.candidate):
                    known = networks[name[1]][record.workload]
                    known[record.candidate] = record.measurement
    return networks, samples


def compare(
    times: Times, near: Neighbours, budget: float, each: float
) -> dict[str, dict[Workload, Candidate]]:
    """Compare the choices of each rule."""
    return {
        "first guess": {workload: first_guess(found) for workload, found in times.items()},
        "near": {workload: nearest(workload, found, near) for workload, found in times.items()},
        "budget": within(times, Estimated(near), budget, each),
        "unknown GPU": within(times, Estimated(None), budget, each),
    }


def best_us(found: dict[Candidate, Measurement]) -> float:
    return min(map(device_us, found.values()))


def ratios_to_best(times: Times, chosen: dict[Workload, Candidate]) -> list[float]:
    return [device_us(times[w][candidate]) / best_us(times[w]) for w, candidate in chosen.items()]


def times_over_best(times: Times, chosen: dict[Workload, Candidate]) -> float:
    total = sum(device_us(times[w][candidate]) for w, candidate in chosen.items())
    return round(total / sum(map(best_us, times.values())), 4)


def first_guess(found: dict[Candidate, Measurement]) -> Candidate:
    return min(found, key=lambda c: (c.backend != "cudnn", c.priority, c.key))


def nearest(workload: Workload, found: dict[Candidate, Measurement], near: Neighbours) -> Candidate:
    estimates = zip(near.estimates(workload, list(found)), found, strict=True)
    known = [(device_us(estimate), c) for estimate, c in estimates if estimate is not None]
    return min(known)[1] if known else first_guess(found)


def within(
    times: Times, known: RecordedCost, budget: float, each: float
) -> dict[Workload, Candidate]:
    """The best of what is measured; the records stand for the GPU."""
    done: list[Candidate] = []

    def measure(workload: Workload, candidate: Candidate, *_: object, **__: object) -> Measurement:
        done.append(candidate)
        return times[workload][candidate]

    backends = [mock.MagicMock() for _ in range(3)]
    for backend, name in zip(backends, ("cudnn", "cutlass", "hopper"), strict=True):
        backend.name, backend.estimate_us.return_value = name, None
        backend.prepare.return_value = {}
    clock: Callable[[], float] = lambda: each * len(done)  # noqa: E731
    model = MeasuredCost(backends, Device(), known, budget=budget, clock=clock)
    with (
        mock.patch("convoy.measure.protocol.measure", measure),
        mock.patch("convoy.cost.builds_ahead.PATIENCE_S", 60.0),  # nothing is built
    ):
        model.weigh(dict.fromkeys(times, 1))
        model.prefetch([(workload, list(found)) for workload, found in times.items()])
        measured = {w: model.measurements(w, list(found)) for w, found in times.items()}
    chosen = {}
    for workload, found in measured.items():
        timed = found if any(found) else model.estimates(workload, list(times[workload]))
        pairs = zip(timed, times[workload], strict=True)
        chosen[workload] = min((device_us(us), c) for us, c in pairs if us is not None)[1]
    return chosen


def summary(ratios: Sequence[float]) -> list[float]:
    """Geometric mean and worst."""
    return [round(statistics.geometric_mean(ratios), 4), round(max(ratios), 2)]


if __name__ == "__main__":
    main()

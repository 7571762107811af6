"""Replays of the autotuner's searches on exhaustive records."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from convoy import paths
from convoy.cost.ranking import SLOWEST, Sample
from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.record import CandidateKey, candidate_key
from convoy.records.store import RecordStore
from convoy.tune.search import InOrder, Random, Search
from convoy.tune.space import Space
from convoy.tune.task import Task

SHARES = (0.05, 0.1, 0.25, 0.5)
#: Networks with fewer workloads than this are left out.
LEAST_WORKLOADS = 10
SEEDS = range(5)

Measured = dict[CandidateKey, tuple[Candidate, Measurement]]


def quality(
    records: Sequence[str], lists: Sequence[Path], batches: Sequence[int], least: int
) -> dict[str, Any]:
    """Replay searches on each network, left out of the training data.

    Args:
        records: Record files; the shipped ones if empty.
        lists: Workload lists, one for each network.
        batches: Batch sizes, each taken as a case of its own.
        least: Candidates of a workload that takes part; with fewer there are no 5% of them.

    Returns:
        Rows of network, search, share of the candidates, share of the best one's speed.
    """
    store = RecordStore(records or [paths.records_dir()])
    known: dict[Workload, Measured] = defaultdict(dict)
    for record in sorted(store, key=lambda r: r.time):  # of one candidate the latest counts
        key = candidate_key(record.candidate)
        known[record.workload][key] = record.candidate, record.measurement
    named = {_name(path): workload_list.read(path) for path in lists}
    rows = []
    for network, listed, batch in [(n, w, b) for n, w in named.items() for b in batches]:
        held_out = [w for w in listed if w.n == batch and len(known[w]) >= least]
        if len(held_out) < LEAST_WORKLOADS:
            continue
        own = {_convolution(w) for w in listed}
        prior = [
            Sample(w, tuple(measured.values()))
            for w, measured in known.items()
            if _convolution(w) not in own
        ]
        case: dict[str, Any] = {"network": network, "batch": batch, "workloads": len(held_out)}
        for name, reached in _replays(held_out, known, prior).items():
            for share, values in reached.items():
                row: dict[str, Any] = {
                    "search": name,
                    "measured": share,
                    "geomean": statistics.geometric_mean(values),
                    "worst": min(values),
                }
                rows.append(case | row)
    for name, share in itertools.product({row["search"] for row in rows}, SHARES):
        same = [r for r in rows if (r["search"], r["measured"]) == (name, share)]
        total = sum(r["workloads"] for r in same)
        logs = sum(r["workloads"] * math.log(r["geomean"]) for r in same)
        case = {"network": "all", "batch": "all", "workloads": total}
        row = {"search": name, "measured": share, "geomean": math.exp(logs / total)}
        rows.append(case | row | {"worst": min(r["worst"] for r in same)})
    rows.sort(key=lambda r: (r["network"] == "all", r["network"], str(r["batch"]), r["search"]))
    newest = max((r for r in store if r.environment.cudnn), key=lambda r: r.time)
    return {
        "left_out": "the network's convolutions at every batch size, epilogue and direction",
        "environment": newest.environment.to_json(),
        "records": len(store),
        "rows": rows,
    }


def _name(path: Path) -> str:
    """Of NETWORK-OP-DTYPE.jsonl the network, with the direction where it is not forward."""
    network, op = path.name.split("-")[:2]
    return network if op == "fprop" else f"{network} {op}"


def _convolution(workload: Workload) -> Workload:
    """The convolution without batch size, epilogue and direction: a network that is left out is so
    with all that it shares with another in any of these."""
    return dataclasses.replace(workload, op="fprop", n=1, epilogue=Epilogue())


def _replays(
    workloads: Sequence[Workload], known: dict[Workload, Measured], prior: list[Sample]
) -> dict[str, dict[float, list[float]]]:
    from convoy.tune.guided import ModelGuided

    searches: dict[str, list[Callable[[], Search]]] = {
        "model": [lambda: ModelGuided(Device(), prior)],
        "random": [functools.partial(Random, seed) for seed in SEEDS],
        "cudnn order": [InOrder],
    }
    reached: dict[str, dict[float, list[float]]] = {}
    for name, makes in searches.items():
        reached[name] = defaultdict(list)
        for make in makes:
            for share, values in replayed(make(), workloads, known).items():
                reached[name][share] += values
    return reached


def replayed(
    search: Search, workloads: Sequence[Workload], known: dict[Workload, Measured]
) -> dict[float, list[float]]:
    """Best found over best of all (at most 1) for each workload, after each share."""
    tasks = []
    for workload in workloads:
        own = known[workload]
        candidates = sorted((c for c, _ in own.values()), key=lambda c: (c.backend, c.priority))
        space = Space(workload, tuple(candidates))
        tasks.append(Task(space, {key: measurement for key, (_, measurement) in own.items()}))
    reached = {}
    for share in SHARES:
        goals = {t.workload: max(1, math.ceil(share * len(t.space.candidates))) for t in tasks}
        while going := [t for t in tasks if len(t.results) < goals[t.workload]]:
            for task, picked in zip(going, search.pick(going, 4), strict=True):
                chosen = picked[: goals[task.workload] - len(task.results)]
                for candidate in chosen:
                    measurement = task.known(candidate)
                    assert measurement is not None
                    task.add(candidate, measurement)
                task.finish_round(len(chosen))
        # Where nothing has run yet the best counts as the slowest time that the model regards.
        best = [_best(known[task.workload]) for task in tasks]
        reached[share] = [b / (t.best_us or SLOWEST * b) for b, t in zip(best, tasks, strict=True)]
    return reached


def _best(own: Measured) -> float:
    return min(m.kernel_us for _, m in own.values() if m.ok and m.kernel_us is not None)

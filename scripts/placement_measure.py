"""Figures that the records lack: candidates of new workloads, and host times on this host.

``rank`` needs no GPU: it asks the backends for candidates, has the trees of ``PredictedCost`` put
them into order, and keeps the best few. ``measure`` times these and adds them to the records.
``host_ratios`` measures
a few recorded candidates again, where the records come from another host.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from placement_gpus import Share, on_each

FIGURES = ("kernel_us", "e2e_us")


def rank(
    args: argparse.Namespace, workloads: Sequence[Any], backends: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """(workload, candidate) worth measuring: of each backend that no record of a workload speaks
    of, the ``args.most`` predicted fastest by each figure."""
    from convoy.cost.model import RecordedCost
    from convoy.cost.predicted import PredictedCost
    from convoy.cost.sources import _store
    from convoy.ir.candidate import Decline
    from convoy.ir.device import Device
    from convoy.records import environment as environments

    device, store = Device(**args.device), _store(args.records)
    recorded = RecordedCost(store, environments.for_device(device))
    predicted = PredictedCost(store, device)
    found = []
    for workload in dict.fromkeys(workloads):
        known = {candidate.backend for candidate in recorded.candidates(workload)}
        for backend in backends:
            if backend.name in known or backend.accepts(workload, device) is not None:
                continue
            proposed = backend.propose(workload, device)
            if isinstance(proposed, Decline):
                continue
            figures = predicted.figures(workload, proposed)
            chosen: dict[Any, None] = {}
            for figure in FIGURES:
                order = sorted(range(len(proposed)), key=lambda i: getattr(figures[i], figure) or 0)
                chosen.update((proposed[i], None) for i in order[: args.most or 3])
            found += [(workload, candidate) for candidate in chosen]
    return found


def keep(path: Path, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Add to what a file holds."""
    pairs = list(dict.fromkeys([*kept(path), *pairs]))
    path.write_text(json.dumps([[w.to_json(), c.to_json()] for w, c in pairs]))


def kept(path: Path) -> list[tuple[Any, Any]]:
    from convoy.ir.candidate import Candidate
    from convoy.ir.workload import Workload

    pairs = json.loads(path.read_text()) if path.is_file() else []
    return [(Workload.from_json(w), Candidate.from_json(c)) for w, c in pairs]


def measure_on_all(args: argparse.Namespace, pairs: Sequence[tuple[Any, Any]], work: Path) -> int:
    """:func:`measure` on every visible GPU at once; workloads are dealt out in their order."""
    by_workload: dict[Any, list[tuple[Any, Any]]] = {}
    for pair in pairs:
        by_workload.setdefault(pair[0], []).append(pair)
    seconds = min(args.measure_seconds, args.ends - time.monotonic())

    def one(share: Share, dealt: list[Any]) -> int:
        todo, done = work / f"measure{share.gpu}.json", work / f"measured{share.gpu}.json"
        todo.unlink(missing_ok=True)
        done.unlink(missing_ok=True)
        keep(todo, [pair for _, own in dealt for pair in own])
        options = {"records": args.records, "device": args.device, "compile": args.compile}
        options |= {"backends": args.backends, "again": args.again}
        options |= {"seconds": seconds, "cores": share.cores}
        command = [sys.executable, __file__, str(todo), str(done), json.dumps(options)]
        subprocess.run(command, env=share.environment(), check=False)
        return int(json.loads(done.read_text())) if done.is_file() else 0

    return sum(on_each(one, list(by_workload.items())))


def measure(
    args: argparse.Namespace, pairs: Sequence[tuple[Any, Any]], backends: Sequence[Any]
) -> int:
    """Measure what the records lack, with ``args.again`` all, until ``args.ends``. Candidates of
    other backends are left out, and those whose kernel is not compiled, unless ``args.compile``.
    How many have figures."""
    from convoy.cost.sources import cost_model
    from convoy.ir.device import Device
    from placement_plans import is_compiled

    compiled, names = is_compiled(), {backend.name for backend in backends}
    by_workload: dict[Any, list[Any]] = {}
    for workload, candidate in pairs:
        if candidate.backend in names and (args.compile or compiled(candidate)):
            by_workload.setdefault(workload, []).append(candidate)
    model, _ = cost_model(
        backends, Device(**args.device), args.records, True, None, None,
        lambda: time.monotonic() < args.ends, args.again,
    )  # fmt: skip
    model.prefetch(list(by_workload.items()))
    return sum(
        figure is not None and figure.ok
        for workload, candidates in by_workload.items()
        for figure in model.figures(workload, candidates)
    )


def host_ratios(args: argparse.Namespace, workloads: Sequence[Any], backends: Sequence[Any]) -> Any:
    """HostTimes of this host for the records of these workloads."""
    from convoy.cost.host import HostTimes
    from convoy.cost.model import MeasuredCost, RecordedCost
    from convoy.cost.sources import _store
    from convoy.ir.device import Device
    from convoy.records import environment as environments

    here, device = environments.current(), Device(**args.device)
    recorded = RecordedCost(_store(args.records), here, HostTimes(here.boot))
    jobs = [(workload, ()) for workload in dict.fromkeys(workloads)]
    MeasuredCost(backends, device, recorded).prefetch(jobs)
    return recorded.hosts


def main() -> None:
    """``placement_measure.py PAIRS.json COUNT.json OPTIONS``: measure pairs (see :func:`keep`) on
    one GPU, and write how many have figures."""
    from placement_plans import backends_of

    options = json.loads(sys.argv[3])
    os.sched_setaffinity(0, options["cores"])
    args = argparse.Namespace(**options, ends=time.monotonic() + options["seconds"])
    count = measure(args, kept(Path(sys.argv[1])), backends_of(args))
    Path(sys.argv[2]).write_text(json.dumps(count))


if __name__ == "__main__":
    main()

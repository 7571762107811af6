"""Measure the quality and the speed of the autotuner, and the speed of the search over covers.

    python scripts/bench_tuner.py quality --lists tuning/workloads/*.jsonl --batches 8
    python scripts/bench_tuner.py speed tuning/workloads/resnet50-fprop-float16.jsonl --batch 8
    python scripts/bench_tuner.py speed tuning/workloads/squeezenet-fprop-float16.jsonl --gpus 1 2
    python scripts/bench_tuner.py spread tuning/workloads/resnet50-fprop-float16.jsonl --batch 8
    python scripts/bench_tuner.py search --sizes 1000 --repeat 5

``quality`` needs no GPU. It takes networks whose workloads have exhaustive records, leaves each in
turn out of the training data of the cost model, and replays the searches on it: the share of the
speed of the best known candidate that is reached after measuring 5, 10, 25 and 50% of the
candidates. ``speed`` tunes from nothing (records of other networks aside), then again. ``spread``
measures the same candidates in separate processes. ``search`` times the exact search on
synthetic graphs. Each prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.synthetic import BACKENDS, FAMILIES, network

from convoy import paths
from convoy.backends.kernels.cache import KernelCache
from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.defaults import LIBRARIES
from convoy.ir.workload import Workload
from convoy.records import record_file
from convoy.records.store import RecordStore
from convoy.report import tables
from harness import replay
from harness.rows import environment, write

#: Speed of the kernels of the search's hard case.
CONTESTED_SPEED = 4.0


def quality(options: argparse.Namespace) -> dict[str, Any]:
    """Replay searches on networks that are left out of the training data; no GPU needed."""
    return replay.quality(options.records, options.lists, options.batches, options.exhaustive)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from no records (and with --empty-cache no compiled kernels) to tuned, and again;
    with several --gpus from nothing for each number of them."""
    workloads = _workloads(options)
    report: dict[str, Any] = {"workloads": len(workloads), "trials": options.trials}
    report |= {"search": options.search, "rows": []}
    for count in options.gpus or [None]:
        with _from_nothing(options, workloads) as folder:
            records = options.keep or folder / "records.jsonl"
            if records.exists():
                raise SystemExit(f"{records} exists: a run from nothing needs a new file")
            for run in ("first", "second"):
                tuned = _tune(options, workloads, records, count)
                report["rows"].append({"gpus": count, "run": run, **tuned})
                if options.out:  # keep the rows of a run that is cut short
                    write(options.out, **report)
            report["environment"] = next(iter(RecordStore(records))).environment.to_json()
    return report


def _tune(
    options: argparse.Namespace, workloads: Sequence[Workload], records: Path, gpus: int | None
) -> dict[str, Any]:
    """Run the tuner once; returns its seconds, counts and the sum of the best times."""
    from convoy.tune.autotune import autotune
    from convoy.tune.budget import Budget
    from convoy.tune.measurer import Spec
    from convoy.tune.progress import ShowProgress

    kernels = KernelCache()
    compiled = len(list(kernels.folder.glob("*.json")))
    started = time.monotonic()
    with ShowProgress() as observer:
        outcome = autotune(
            workloads,
            records=records,
            search=options.search,
            budget=Budget(options.trials or None, options.seconds, batch=options.round),
            compile=not options.no_compile,
            neighbours=not options.no_neighbours,
            gpus=gpus,
            spec=Spec(options={"backends": LIBRARIES, "cold": not options.no_cold}),
            observer=observer,
        )
    return {
        "seconds": round(time.monotonic() - started, 2),
        "measured": outcome.measured,
        "failed": outcome.failed,
        "reused": outcome.reused,
        "compiled": len(list(kernels.folder.glob("*.json"))) - compiled,
        "stopped": outcome.stopped,
        "sum_of_best_us": sum(o.measurement.kernel_us or 0 for o in outcome.best.values()),
    }


@contextlib.contextmanager
def _from_nothing(options: argparse.Namespace, workloads: Sequence[Workload]) -> Iterator[Path]:
    """A folder to tune in while shipped records of these workloads, and on request compiled
    kernels, are out of sight."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shipped = folder / "shipped"
        shipped.mkdir()
        left_out = set(workloads)
        rest = [r for r in RecordStore([paths.records_dir()]) if r.workload not in left_out]
        if not options.no_prior:
            record_file.replace(shipped / "shipped.jsonl", rest)
        cache = Path(options.empty_cache or folder / "cache")
        if options.empty_cache and cache.exists() and any(cache.iterdir()):
            raise SystemExit(f"{cache} is not empty")
        changes = {} if options.empty_cache is None else {"CONVOY_CACHE_DIR": str(cache)}
        hidden = mock.patch.object(paths, "records_dir", lambda: shipped)
        with hidden, mock.patch.dict(os.environ, changes):
            yield folder


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the fastest known candidates of each workload in separate processes."""
    from convoy.tune.local_executor import visible_gpus
    from convoy.tune.measurer import Spec
    from convoy.tune.process import MeasuringProcess

    store = RecordStore(options.records or [paths.records_dir()])
    chosen: list[tuple[Workload, Candidate]] = []
    for workload in _workloads(options):
        records = [r for r in store.of(workload) if r.candidate.backend == "cudnn"]
        records = [r for r in records if r.measurement.ok]
        records.sort(key=lambda r: r.measurement.kernel_us or 0.0)
        chosen += [(workload, r.candidate) for r in records[: options.each]]
    spec = Spec(options={"backends": ["cudnn"], "cold": True})
    times: dict[tuple[Workload, Candidate], list[float]] = defaultdict(list)
    cold: dict[tuple[Workload, Candidate], list[float]] = defaultdict(list)
    processes = [MeasuringProcess(spec, visible_gpus()[0]) for _ in range(options.runs)]
    with ThreadPoolExecutor(options.runs) as pool:  # loading libraries takes longest
        list(pool.map(MeasuringProcess.describe, processes))
    for process in processes:
        for workload, candidate in chosen:
            found, _ = process.measure(workload, candidate, None)
            if found.ok and found.kernel_us is not None:
                times[workload, candidate].append(found.kernel_us)
                cold[workload, candidate].append(found.cold_us or math.nan)
        process.close()
    rows = []
    for (workload, candidate), values in times.items():
        row: dict[str, Any] = {
            "workload": workload.key,
            "kernel": candidate.kernel,
            "runs": len(values),
        }
        row |= {"median_us": statistics.median(values), "mad": _mad(values)}
        rows.append(row | {"cold_mad": _mad(cold[workload, candidate])})
    mads = sorted(row["mad"] for row in rows)
    about = {"runs": options.runs, "candidates": len(rows), "largest_mad": mads[-1]}
    about |= {"median_mad": statistics.median(mads), "p95_mad": mads[int(0.95 * (len(mads) - 1))]}
    return {**about, "rows": rows}


def _mad(values: Sequence[float]) -> float:
    """Median absolute deviation over the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values) / middle


def _workloads(options: argparse.Namespace) -> list[Workload]:
    found = [w for path in options.lists for w in workload_list.read(path)]
    return [w for w in dict.fromkeys(found) if options.batch in (None, w.n)]


def search(options: argparse.Namespace) -> dict[str, Any]:
    """Process time of the exact search on synthetic graphs; no GPU needed.

    ``contested`` rows have kernels four times faster, so that host and device time of ``stream``
    are near each other, which is its hard case. Each row is the median of ``--repeat`` runs.
    """
    from convoy.ir.objective import OBJECTIVES

    rows = [
        _searched(family, size, objective, speed, options.repeat)
        for family in options.families
        for size in options.sizes
        for objective in OBJECTIVES
        for speed in ((1.0, CONTESTED_SPEED) if objective == "stream" else (1.0,))
    ]
    return {"environment": environment(), "rows": rows}


def _searched(family: str, size: int, objective: str, speed: float, repeat: int) -> dict[str, Any]:
    """One row: how long the search took, how good the cover is, and what proves it."""
    from convoy.placement.cover import find_cover, single_backend

    graph = network(family, size, speed=speed)
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        cover = find_cover(graph, objective, backend_order=BACKENDS)
        seconds.append(time.process_time() - start)
    singles = [
        single_backend(graph, [name, "tvm"], objective).optimum_us
        for name in BACKENDS
        if size <= 1000
    ]
    return {
        "family": family + ("" if speed == 1.0 else " contested"),
        "objective": objective,
        "ops": len(graph.ops),
        "matches": len(graph.subgraphs),
        "seconds": round(statistics.median(seconds), 3),
        "solver": "cuts" if cover.states else "integer",
        "cost_us": cover.total_us(),
        "optimum_us": cover.optimum_us,
        "gap": cover.gap,
        "best_single_us": min(singles, default=None),
    }


def show(report: dict[str, Any]) -> None:
    rows = report["rows"]
    tables.show(list(rows[0]), [list(row.values()) for row in rows[:60]])
    print({key: value for key, value in report.items() if key != "rows"})


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(dest="command", required=True)
    for function in (quality, speed, spread, search):
        about = (function.__doc__ or "").split("\n")[0]
        command = commands.add_parser(function.__name__, help=about)
        command.set_defaults(run=function)
        add = command.add_argument
        add("--out", type=Path, help="JSON file to write")
        if function is search:
            add("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
            add("--sizes", nargs="+", type=int, default=[50, 100, 200, 500, 1000, 2000, 5000])
            add("--repeat", type=int, default=1)
            continue
        if function is not speed:
            add("--records", nargs="+", help="default: the shipped ones")
        if function is quality:
            add("--batches", nargs="+", type=int, default=[8])
            add("--lists", nargs="+", type=Path, required=True)
            add("--exhaustive", type=int, default=20)
            continue
        add("lists", nargs="+", type=Path, help="workload lists")
        add("--batch", type=int, help="only workloads of this batch size")
        if function is spread:
            add("--runs", type=int, default=10)
            add("--each", type=int, default=2, help="candidates of a workload")
            continue
        add("--search", default="model")
        add("--trials", type=int, default=12, help="0: all")
        add("--round", type=int, default=4, help="trials chosen at a time")
        add("--seconds", type=float, help="end tuning after so many")
        add("--gpus", nargs="+", type=int, help="numbers of GPUs to compare")
        add("--keep", type=Path, help="file for the records")
        add("--no-neighbours", action="store_true")
        add("--no-cold", action="store_true", help="no times with a cold cache")
        add("--no-compile", action="store_true")
        add("--no-prior", action="store_true", help="hide all shipped records")
        empty = "compile every kernel, into this empty folder (default: a temporary one)"
        add("--empty-cache", nargs="?", type=Path, const="", help=empty)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    report = options.run(options)
    show(report)
    if options.out:
        write(options.out, **report)


if __name__ == "__main__":
    main()

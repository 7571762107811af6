"""How good and how fast the autotuner is.

    python scripts/bench_tuner.py quality --lists tuning/workloads/*.jsonl --batches 8
    python scripts/bench_tuner.py speed tuning/workloads/resnet50-fprop-float16.jsonl --batch 8
    python scripts/bench_tuner.py gpus tuning/workloads/squeezenet-fprop-float16.jsonl --gpus 2
    python scripts/bench_tuner.py spread tuning/workloads/resnet50-fprop-float16.jsonl --batch 8

``quality`` needs no GPU. It takes networks whose workloads have exhaustive records, leaves each in
turn out of what the cost model learns from, and replays the searches on it: which share of the
speed of the best known candidate is reached after measuring 5, 10, 25 and 50% of the candidates.
``speed`` tunes from nothing (records of other networks aside), then again. ``gpus`` compares one
GPU with several. ``spread`` measures the same candidates in separate processes. Each prints a table
and writes JSON; ``quality`` also draws a picture.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from convoy import paths
from convoy.backends.kernels.cache import KernelCache
from convoy.cost.ranking import SLOWEST, Sample
from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Epilogue, Workload
from convoy.records import record_file
from convoy.records.record import CandidateKey, candidate_key
from convoy.records.store import RecordStore
from convoy.tune.search import InOrder, Random, Search
from convoy.tune.space import Space
from convoy.tune.task import Task

SHARES = (0.05, 0.1, 0.25, 0.5)
#: Workloads with fewer candidates than this have no 5% of them.
LEAST_CANDIDATES = 20
#: And networks with fewer such workloads than this are left out.
LEAST_WORKLOADS = 10
SEEDS = range(5)

Figures = dict[CandidateKey, tuple[Candidate, Measurement]]


def quality(options: argparse.Namespace) -> dict[str, Any]:
    """Leave one network out: rows of network, search, share of candidates, share of the best."""
    store = RecordStore(options.records or [paths.records_dir()])
    known: dict[Workload, Figures] = defaultdict(dict)
    for record in sorted(store, key=lambda r: r.time):  # of one candidate the latest counts
        known[record.workload][candidate_key(record.candidate)] = (
            record.candidate,
            record.measurement,
        )
    lists = {_name(path): workload_list.read(path) for path in options.lists}
    rows = []
    for network, listed, batch in [(n, w, b) for n, w in lists.items() for b in options.batches]:
        held_out = [w for w in listed if w.n == batch and len(known[w]) >= options.exhaustive]
        if len(held_out) < LEAST_WORKLOADS:
            continue
        own = {_convolution(w) for w in listed}
        prior = [
            Sample(w, tuple(figures.values()))
            for w, figures in known.items()
            if _convolution(w) not in own
        ]
        for name, reached in _replays(held_out, known, prior).items():
            for share, values in reached.items():
                rows.append(
                    {
                        "network": network,
                        "batch": batch,
                        "workloads": len(held_out),
                        "search": name,
                        "measured": share,
                        "geomean": math.exp(float(np.mean(np.log(values)))),
                        "worst": min(values),
                    }
                )
    for name in {row["search"] for row in rows}:
        for share in SHARES:
            same = [r for r in rows if (r["search"], r["measured"]) == (name, share)]
            logs = [r["workloads"] * math.log(r["geomean"]) for r in same]
            total = sum(r["workloads"] for r in same)
            rows.append(
                {
                    "network": "all",
                    "batch": "all",
                    "workloads": total,
                    "search": name,
                    "measured": share,
                    "geomean": math.exp(sum(logs) / total),
                    "worst": min(r["worst"] for r in same),
                }
            )
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
    """The same whatever the batch size, the epilogue and the direction: what a network that is left
    out shares with another, in any of these, is left out as well."""
    return dataclasses.replace(workload, op="fprop", n=1, epilogue=Epilogue())


def _replays(
    workloads: Sequence[Workload], known: dict[Workload, Figures], prior: list[Sample]
) -> dict[str, dict[float, list[float]]]:
    from convoy.tune.guided import ModelGuided

    searches: dict[str, list[Callable[[], Search]]] = {
        "model": [lambda: ModelGuided(Device(), prior)],
        "random": [lambda seed=seed: Random(seed) for seed in SEEDS],
        "cudnn order": [InOrder],
    }
    reached: dict[str, dict[float, list[float]]] = {}
    for name, makes in searches.items():
        reached[name] = defaultdict(list)
        for make in makes:
            for share, values in _replay(make(), workloads, known).items():
                reached[name][share] += values
    return reached


def _replay(
    search: Search, workloads: Sequence[Workload], known: dict[Workload, Figures]
) -> dict[float, list[float]]:
    """Best found over best of all (at most 1) for each workload, after each share."""
    tasks = []
    for workload in workloads:
        figures = known[workload]
        candidates = sorted((c for c, _ in figures.values()), key=lambda c: (c.backend, c.priority))
        tasks.append(
            Task(Space(workload, tuple(candidates)), {k: m for k, (_, m) in figures.items()})
        )
    reached = {}
    for share in SHARES:
        goals = {t.workload: max(1, math.ceil(share * len(t.space.candidates))) for t in tasks}
        while going := [t for t in tasks if len(t.results) < goals[t.workload]]:
            for task, picked in zip(going, search.pick(going, 4), strict=True):
                chosen = picked[: goals[task.workload] - len(task.results)]
                for candidate in chosen:
                    figures = task.known(candidate)
                    assert figures is not None
                    task.add(candidate, figures)
                task.finish_round(len(chosen))
        # Where nothing has run yet the best counts as missed by what is useless to the model.
        best = [_best(known[task.workload]) for task in tasks]
        reached[share] = [b / (t.best_us or SLOWEST * b) for b, t in zip(best, tasks, strict=True)]
    return reached


def _best(figures: Figures) -> float:
    return min(m.kernel_us for _, m in figures.values() if m.ok and m.kernel_us is not None)


def draw(report: dict[str, Any], path: Path) -> None:
    """One panel for each network and batch, the geomean as a line and the worst workload dotted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sets = list(dict.fromkeys((row["network"], row["batch"]) for row in report["rows"]))
    columns = min(4, len(sets))
    rows = math.ceil(len(sets) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(3.1 * columns, 0.4 + 3.0 * rows), sharey=True, squeeze=False
    )
    panels = list(grid.flat)
    for unused in panels[len(sets) :]:
        unused.set_axis_off()
    colours = {"model": "#1f6feb", "random": "#d1242f", "cudnn order": "#6e7781"}
    for panel, (network, batch) in zip(panels, sets, strict=False):
        of_panel = [r for r in report["rows"] if (r["network"], r["batch"]) == (network, batch)]
        for search, colour in colours.items():
            line = [r for r in of_panel if r["search"] == search]
            line.sort(key=lambda r: r["measured"])
            x = [100 * r["measured"] for r in line]
            panel.plot(x, [100 * r["geomean"] for r in line], "o-", color=colour, label=search)
            panel.plot(x, [100 * r["worst"] for r in line], "o:", color=colour, alpha=0.5, ms=3)
        panel.axhline(99, color="#afb8c1", lw=0.8, zorder=0)
        title = network if network == batch else f"{network}, batch {batch}"
        panel.set_title(f"{title} ({of_panel[0]['workloads']} workloads)", fontsize=9)
        panel.set_xscale("log")
        panel.set_xticks([100 * share for share in SHARES], [f"{s:.0%}" for s in SHARES])
        panel.minorticks_off()
        panel.set_xlabel("candidates measured")
    for row in grid:
        row[0].set_ylabel("% of the best candidate's speed")
    panels[0].set_ylim(0, 103)
    panels[len(sets) - 1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.suptitle(
        "each network left out of training; lines: geometric mean, dotted: worst workload",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(path)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from no records (and with --empty-cache no compiled kernels) to tuned, and again."""
    workloads = _workloads(options)
    report: dict[str, Any] = {"workloads": len(workloads), "trials": options.trials, "rows": []}
    with _from_nothing(options, workloads) as folder:
        records = options.keep or folder / "records.jsonl"
        if records.exists():
            raise SystemExit(f"{records} exists: a run from nothing needs a new file")
        for run in ("first", "second"):
            report["rows"].append({"run": run, **_tune(options, workloads, records)})
            if options.out:  # what was found so far outlives a run that is cut short
                options.out.write_text(json.dumps(report, indent=1) + "\n")
        report["environment"] = next(iter(RecordStore(records))).environment.to_json()
    return report


def gpus(options: argparse.Namespace) -> dict[str, Any]:
    """The same tuning on one GPU and on several, each from no records."""
    workloads = _workloads(options)
    most = options.gpus or 2
    report: dict[str, Any] = {"workloads": len(workloads), "trials": options.trials, "rows": []}
    report["search"] = options.search
    for count in (1, most):
        options.gpus = count
        with _from_nothing(options, workloads) as folder:
            records = folder / "records.jsonl"
            report["rows"].append({"gpus": count, **_tune(options, workloads, records)})
            if options.keep:
                with options.keep.open("a") as kept:
                    kept.write(records.read_text())
            report["environment"] = next(iter(RecordStore(records))).environment.to_json()
        if options.out:
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    one, several = report["rows"]
    report["ratio"] = several["seconds"] / one["seconds"]
    return report


def _tune(
    options: argparse.Namespace, workloads: Sequence[Workload], records: Path
) -> dict[str, Any]:
    """One run of the tuner, in figures."""
    from convoy.tune.autotune import BACKENDS, autotune
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
            gpus=options.gpus,
            spec=Spec(options={"backends": BACKENDS, "cold": not options.no_cold}),
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
    shipped_dir, cache_dir = paths.records_dir, os.environ.get("CONVOY_CACHE_DIR")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shipped = folder / "shipped"
        shipped.mkdir()
        left_out = set(workloads)
        rest = [r for r in RecordStore([shipped_dir()]) if r.workload not in left_out]
        if not options.no_prior:
            record_file.replace(shipped / "shipped.jsonl", rest)
        cache = Path(options.empty_cache or folder / "cache")
        if options.empty_cache and cache.exists() and any(cache.iterdir()):
            raise SystemExit(f"{cache} is not empty")
        try:
            paths.records_dir = lambda: shipped  # type: ignore[assignment]
            if options.empty_cache is not None:
                os.environ["CONVOY_CACHE_DIR"] = str(cache)
            yield folder
        finally:
            paths.records_dir = shipped_dir
            if options.empty_cache is not None:
                os.environ.pop("CONVOY_CACHE_DIR")
                if cache_dir is not None:
                    os.environ["CONVOY_CACHE_DIR"] = cache_dir


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """The fastest known candidates of each workload measured in separate processes."""
    from convoy.tune.local_executor import visible_gpus
    from convoy.tune.measurer import Spec
    from convoy.tune.process import MeasuringProcess

    store = RecordStore(options.records or [paths.records_dir()])
    chosen: list[tuple[Workload, Candidate]] = []
    for workload in _workloads(options):
        records = [
            r for r in store.of(workload) if r.measurement.ok and r.candidate.backend == "cudnn"
        ]
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
            figures, _ = process.measure(workload, candidate, None)
            if figures.ok and figures.kernel_us is not None:
                times[workload, candidate].append(figures.kernel_us)
                cold[workload, candidate].append(figures.cold_us or math.nan)
        process.close()
    rows = [
        {
            "workload": workload.key,
            "kernel": candidate.kernel,
            "runs": len(values),
            "median_us": statistics.median(values),
            "mad": _mad(values),
            "cold_mad": _mad(cold[workload, candidate]),
        }
        for (workload, candidate), values in times.items()
    ]
    mads = sorted(row["mad"] for row in rows)
    return {
        "runs": options.runs,
        "candidates": len(rows),
        "median_mad": statistics.median(mads),
        "p95_mad": mads[int(0.95 * (len(mads) - 1))],
        "largest_mad": mads[-1],
        "rows": rows,
    }


def _mad(values: Sequence[float]) -> float:
    """Median absolute deviation over the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values) / middle


def _workloads(options: argparse.Namespace) -> list[Workload]:
    found = [w for path in options.lists for w in workload_list.read(path)]
    return [w for w in dict.fromkeys(found) if options.batch in (None, w.n)]


def show(report: dict[str, Any]) -> None:
    rows = report["rows"]
    table = Table(*rows[0])
    for row in rows[:60]:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)
    print({key: value for key, value in report.items() if key != "rows"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in (
        ("quality", quality),
        ("speed", speed),
        ("gpus", gpus),
        ("spread", spread),
    ):
        command = commands.add_parser(name, help=(function.__doc__ or "").split("\n")[0])
        command.set_defaults(run=function)
        command.add_argument("--out", type=Path, help="JSON file to write")
        if name in ("quality", "spread"):
            command.add_argument("--records", nargs="+", help="default: the shipped ones")
        if name == "quality":
            command.add_argument("--batches", nargs="+", type=int, default=[8])
            command.add_argument("--lists", nargs="+", type=Path, required=True)
            command.add_argument("--plot", type=Path, help="picture to write, .svg or .png")
            command.add_argument("--exhaustive", type=int, default=LEAST_CANDIDATES)
            continue
        command.add_argument("lists", nargs="+", type=Path, help="workload lists")
        command.add_argument("--batch", type=int, help="only workloads of this batch size")
        if name == "spread":
            command.add_argument("--runs", type=int, default=10)
            command.add_argument("--each", type=int, default=2, help="candidates of a workload")
            continue
        command.add_argument("--search", default="model")
        command.add_argument("--trials", type=int, default=12, help="0: all")
        command.add_argument("--round", type=int, default=4, help="trials chosen at a time")
        command.add_argument("--no-neighbours", action="store_true")
        command.add_argument("--no-cold", action="store_true", help="no figures of a cold cache")
        command.add_argument("--seconds", type=float)
        command.add_argument("--gpus", type=int)
        command.add_argument("--keep", type=Path, help="file for the records")
        command.add_argument("--no-compile", action="store_true")
        command.add_argument(
            "--empty-cache",
            nargs="?",
            type=Path,
            const="",
            help="compile every kernel, into this empty folder (default: a temporary one)",
        )
        command.add_argument("--no-prior", action="store_true", help="hide all shipped records")
    options = parser.parse_args()
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    report = options.run(options)
    show(report)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    if getattr(options, "plot", None):
        draw(report, options.plot)


if __name__ == "__main__":
    main()

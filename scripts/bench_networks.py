"""Time whole networks: Convoy's systems and its peers in one run.

    python scripts/bench_networks.py inference --networks resnet50 --batches 1 8 256
    python scripts/bench_networks.py inference --networks all --systems placed streams eager compile
    python scripts/bench_networks.py inference --networks conv_pair --systems placed streams
    python scripts/bench_networks.py training --batches 8 64
    python scripts/bench_networks.py placement --batches 1 8 64 --work work
    python scripts/bench_networks.py placement --from results.json        the tables again, no GPU

``inference`` and ``training`` compare systems: Convoy with one backend or all, on one stream or
several, as one CUDA graph or with asynchronous launches, and PyTorch eager under a CUDA graph,
torch.compile, XLA. ``placement`` compares placements in all three run modes: each backend alone,
greedy, the exact cover, the evolved one, and plans made for the wrong metric.

Networks of one batch size are compiled side by side; then one after the other is timed, all of
Convoy's systems of a network in turns in one fresh process, on the same inputs. Outputs are
compared before a time counts. Modules are kept in ``--work`` and not compiled again, so that
``--build-only`` may run before, on a machine without a GPU. Prints tables and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import peers, placement, systems, training
from harness.networks import INFERENCE, NETWORKS
from harness.prepared import prepare
from harness.rows import Bench, Row, environment, write
from harness.systems import ALL, SYSTEMS, System

#: Networks, batch sizes and systems of each command.
DEFAULTS: dict[str, tuple[Sequence[str], Sequence[int], Sequence[str]]] = {
    "inference": (
        ["resnet50"], [1, 8, 256], ["cudnn", "cutlass", "placed", "streams", "eager", "compile"],
    ),
    "training": (
        ["resnet50_training"], [8, 64],
        ["float32", "half", "amp", "placed", "cudnn", "streams"],
    ),
    "placement": (
        ["resnet50", "inception_v3", "googlenet", "densenet121", "resnext50"], [1, 8, 64], [],
    ),
}  # fmt: skip
DETAILS = (
    "network", "N", "system", "ms", "+-", "latency ms", "predicted ms", "streams", "decided by",
    "arena MB (one stream)", "error", "kernels of",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(dest="command", required=True)
    for name, (names, batches, chosen) in DEFAULTS.items():
        command = commands.add_parser(name)
        add = command.add_argument
        add("--networks", nargs="+", default=names, choices=["all", *NETWORKS])
        add("--batches", nargs="+", type=int, default=batches)
        if name == "placement":
            add("--modes", nargs="+", choices=placement.MODES, default=placement.MODES)
            add("--from", dest="source", type=Path, help="results to show again")
        else:
            known = [*SYSTEMS, *peers.PEERS]
            add("--systems", nargs="+", default=chosen, choices=known)
        add("--backends", nargs="+", default=list(ALL), help="what placement chooses from")
        add("--precision", default="float16")
        add("--objective", default="graph", help="of the systems that name none")
        add("--search", default="exact", help="of the systems that name none")
        add("--records", help="file of measurements, read and added to")
        add("--no-measure", action="store_true", help="place from records alone")
        add("--most", type=int, help="candidates of each backend to measure")
        add("--jobs", type=int, default=os.cpu_count(), help="networks compiled at once")
        add("--timeout", type=float, default=3600, help="seconds to compile a batch size")
        add("--seconds", type=float, default=1.0, help="of timing, for each system")
        add("--work", type=Path, help="folder of plans, modules and schedules to keep")
        add("--build-only", action="store_true", help="compile into --work, time nothing")
        add("--out", default="", help="JSON file to write")
    worker = commands.add_parser("worker")  # started by the others
    worker.add_argument("task")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if args.command == "worker":
        task = json.loads(args.task)
        if task.pop("task") == "peer":
            print(json.dumps(peers.work(**task)))
        else:
            print(json.dumps(systems.work(json.loads(args.task))))
        return 0
    if args.command == "placement" and args.source:
        print(placement.markdown(json.loads(args.source.read_text())["runs"]))
        return 0
    if args.build_only and not args.work:
        parser().error("--build-only needs --work, a folder to keep the modules in")
    title = {"training": "training step"}.get(args.command, "inference")
    bench = Bench(title, "" if args.command == "placement" else args.out)
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        for batch in args.batches:
            run_batch(args, bench, work, batch)
    if args.build_only:
        return 1 if bench.failures() else 0
    if args.command == "placement":
        runs = [placement_run(row) for row in bench.rows]
        print(placement.markdown(runs))
        if args.out:
            rows = placement.table_rows(runs)
            about = {"benchmark": title, "environment": environment()}
            write(args.out, **about, rows=rows, runs=runs)
    else:
        training.check(bench.rows)
        bench.save()
        show(bench.rows)
    return 1 if bench.failures() else 0


def placement_run(row: Row) -> Row:
    """A row of the benchmark as a run of a plan."""
    case = {"network": row["model"], "batch": row["batch"]}
    rest = {k: v for k, v in row.items() if k not in ("model", "batch", "system")}
    return {**case, "plan": row["system"], **rest}


def run_batch(args: argparse.Namespace, bench: Bench, work: Path, batch: int) -> None:
    """Compile and time all networks at a batch size."""
    options: Row = {"precision": args.precision, "seconds": args.seconds}
    options |= {"halves": args.command == "placement", "build_only": args.build_only}
    if args.records:
        options["records"] = args.records
    if args.no_measure:
        options["measure"] = False
    if args.most:
        options["most_measured"] = args.most
    names = [n for name in args.networks for n in (INFERENCE if name == "all" else [name])]
    workers = {}
    for name in dict.fromkeys(names):
        for chosen in groups(args, batch):
            if chosen and NETWORKS[name].make is not None:
                own = work / f"{name}-n{batch}-{args.precision}"
                fixed: Row = {"system": "convoy", "model": name, "batch": batch}
                fixed["mode"] = chosen[0].mode
                workers[tuple(fixed.items())] = systems.worker(name, batch, chosen, own, options)
        for peer in [] if args.build_only else named(args, peers.PEERS):
            fixed = {"system": peer, "model": name, "batch": batch}
            workers[tuple(fixed.items())] = peers.worker(peer, name, batch)
    took = prepare(list(workers.values()), args.jobs, args.timeout)
    print(f"N={batch}: ready after {took:.0f} s", file=sys.stderr, flush=True)
    for case, process in workers.items():
        bench.run_many(dict(case), process.go)


def named(args: argparse.Namespace, known: Sequence[str]) -> list[str]:
    return [name for name in getattr(args, "systems", []) if name in known]


def groups(args: argparse.Namespace, batch: int) -> list[list[System]]:
    """Convoy's systems by the process that times them: graphs and asynchronous launches in one,
    synchronized ones, which need another environment, in another."""
    backends = tuple(args.backends)
    if args.command == "placement":
        chosen = [s for m in args.modes for s in placement.systems(m, batch, backends)]
        synchronized = [s for s in chosen if s.mode == "sync"]
        return [[s for s in chosen if s.mode != "sync"], synchronized]
    found = []
    for name in named(args, list(SYSTEMS)):
        system = SYSTEMS[name]
        changes: dict[str, Any] = {"objective": args.objective}
        if system.backends == ALL:
            changes["backends"] = backends
        if system.search == "exact":
            changes["search"] = args.search
        found.append(System(**{**vars(system), **changes}))
    return [found]


def show(rows: Sequence[Row]) -> None:
    """Milliseconds by network and system, and the details of Convoy's systems."""
    from convoy.report import tables

    names = list(dict.fromkeys(row["system"] for row in rows))
    found = {(row["model"], row["batch"], row["system"]): row for row in rows}
    cells = [
        [model, batch, *(_ms(found.get((model, batch, name), {})) for name in names)]
        for model, batch in dict.fromkeys(key[:2] for key in found)
    ]
    tables.show(("network", "N", *names), cells, "ms of one run")
    tables.show(DETAILS, [details(row) for row in rows if "backends" in row], "Convoy's systems")


def details(row: Row) -> tuple[Any, ...]:
    """Cells of a row of the second table; None if a fact is missing."""
    arena, error = row.get("arena_bytes"), row.get("error", row.get("differs"))
    return (
        row["model"], row["batch"], row["system"], _ms(row), _ms(row, "spread_ms"),
        _ms(row, "latency_ms"), _ms(row, "predicted_ms"), row.get("streams"),
        row.get("decided_by"),
        f"{arena / 1e6:.1f} ({row['single_arena_bytes'] / 1e6:.1f})" if arena else None,
        f"{error:.0e}" if error is not None else None,
        " ".join(f"{name}={count}" for name, count in row["backends"].items()),
    )  # fmt: skip


def _ms(row: Row, key: str = "ms") -> str | None:
    return f"{row[key]:.4f}" if key in row else None


if __name__ == "__main__":
    raise SystemExit(main())

"""Time PyTorch models through Convoy's PyTorch door, beside PyTorch's own ways to run them.

    python scripts/bench_models.py --models torchvision.resnet50 timm.convnext_tiny own.unet@256
    python scripts/bench_models.py --models families --batches 1 8 64 --out families.json --resume
    python scripts/bench_models.py --training --models torchvision.resnet50 --batches 64 \\
        --systems convoy compile
    python scripts/bench_models.py --models torchvision.resnet50 \\
        --systems convoy 'convoy[CONVOY_PROGRAMMATIC_LAUNCH=0]' 'convoy[streams=1]' eager

Each model and batch size has a fresh process with empty caches, in which one system after the other
is built, compared with float64 and then timed in turns with the others. Systems are ``convoy``
(``convoy.compile`` by default; ``ms`` are of the replayed graph, ``call_ms`` of a call), ``eager``
(PyTorch under a CUDA graph, batch norms folded), ``compile`` (``torch.compile``, frozen, CUDA
graphs) and ``autotune`` (the same in its mode max-autotune), all but Convoy with channels last.
``convoy[NAME=VALUE,...]`` is Convoy with options of ``convoy.compile`` or, in capitals, environment
variables. ``--jobs`` builds the peers of several cases side by side, but Convoy and all timing have
the GPU in turns; a peer's build may still launch kernels beside them, so look for ``disturbed``.
``--training`` times training steps in mixed precision (``harness/model_training.py``).

Models are ``torchvision.NAME``, ``timm.NAME`` and ``own.NAME`` (unet, yolo, audio, fpn, gan), with
``@SIZE`` for another size of inputs than their own; ``families`` stands for one of each family.
Weights are random. Rows are written to ``--out`` when a process has ended; ``--resume`` keeps those
that are there and runs the others. The exit code is 1 if a system failed, or has an error beyond
three times that of PyTorch in the same precision; ``autotune`` that does not end is skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import model_systems, model_training, models
from harness.model_systems import ROUNDING, System
from harness.prepared import caches_in, run_alone
from harness.rows import Bench, Row, environment, progress, write

DETAILS = ("model", "N", "system", "+-", "call ms", "predicted", "kernels", "build s", "error")
#: Seconds for a worker to start, to make the model and to compute it in float64.
STARTING = 300.0
#: Locked by the process whose turn it is with ``--jobs``.
TURN = Path(tempfile.gettempdir(), f"convoy-bench-models-{os.getpid()}.lock")

#: A model's name and a batch size.
Case = tuple[str, int]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--models", nargs="+", default=["torchvision.resnet50"], metavar="MODEL")
    add("--batches", nargs="+", type=int, default=[1, 8])
    add("--systems", nargs="+", default=["convoy", "eager", "compile"], metavar="SYSTEM")
    add("--training", action="store_true", help="time training steps")
    add("--precision", choices=list(ROUNDING), default="float16")
    add("--seconds", type=float, default=1.0, help="of timing, for each system")
    add("--timeout", type=float, default=300, help="seconds to build a system")
    add("--autotune-timeout", type=float, default=600, help="the same for autotune")
    add("--jobs", type=int, default=1, help="cases that are prepared at a time")
    add("--report", choices=["layers"], help="write Convoy's layers to OUT-layers.json")
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu tries this script")
    add("--resume", action="store_true", help="keep the rows of --out, time what it lacks")
    add("--out", default="", help="JSON file to write")
    add("--worker", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if args.worker:
        task = json.loads(args.worker)
        work = model_training.work if task.pop("training") else model_systems.work
        print("\n" + json.dumps(work(**task)))
        return 0
    if args.training and args.report:
        parser().error("--report is of inference")
    if (args.report or args.resume) and not args.out:
        parser().error("--report and --resume need --out, the file of the results")
    names = [n for name in args.models for n in (models.FAMILIES if name == "families" else [name])]
    try:
        for name in names:
            models.Name.parse(name)
        labels = [System.parse(text).label for text in args.systems]
    except ValueError as err:
        parser().error(str(err))
    cases = [(name, batch) for batch in args.batches for name in dict.fromkeys(names)]
    bench = Bench("training step" if args.training else "inference", args.out)
    layers: list[Row] = []
    if args.resume:
        cases, kept, layers = earlier(args, cases, labels)
        if kept:
            bench.run_many({}, lambda: kept)
    with progress() as bar, ThreadPoolExecutor(args.jobs) as pool:
        task = bar.add_task("", total=len(cases))
        started = [pool.submit(measured, args, name, batch, layers) for name, batch in cases]
        for (name, batch), rows in zip(cases, started, strict=True):
            bar.update(task, description=f"{name}, N={batch}")
            bench.run_many({"model": titled(name, args), "batch": batch}, rows.result)
            if args.report:
                write(layers_file(args), environment=environment(), layers=layers)
            bar.advance(task)
    show(bench.rows)
    failed = [row for row in bench.rows if "failed" in row]
    for row in failed:
        print(f"{row['model']}, N={row['batch']}, {row['system']}: {row['failed']}")
    return 1 if failed else 0


def titled(name: str, args: argparse.Namespace) -> str:
    """A model's name in results."""
    return name if args.precision == "float16" else f"{name}, {args.precision}"


def layers_file(args: argparse.Namespace) -> Path:
    out = Path(args.out)
    return out.with_name(f"{out.stem}-layers.json")


def earlier(
    args: argparse.Namespace, cases: Sequence[Case], labels: Sequence[str]
) -> tuple[list[Case], list[Row], list[Row]]:
    """The cases that the results lack; the rows, and the layers, of all others."""
    files = {"rows": Path(args.out), "layers": layers_file(args)}
    rows, layers = (
        json.loads(path.read_text())[key] if path.is_file() else [] for key, path in files.items()
    )
    done = {(row["model"], row["batch"], row["system"]) for row in rows if "failed" not in row}
    todo = [(n, b) for n, b in cases if not {(titled(n, args), b, s) for s in labels} <= done]
    again = {(titled(name, args), batch) for name, batch in todo}
    kept = [[r for r in part if (r["model"], r["batch"]) not in again] for part in (rows, layers)]
    return todo, kept[0], kept[1]


def measured(args: argparse.Namespace, model: str, batch: int, layers: list[Row]) -> list[Row]:
    """The rows of a model and batch size from a new process; their layers are added to the list."""
    if not sys.stderr.isatty():
        print(f"{model}, N={batch}", file=sys.stderr, flush=True)
    limits = dict.fromkeys(model_systems.KINDS, args.timeout) | {"autotune": args.autotune_timeout}
    systems = [System.parse(text) for text in args.systems]
    longest = args.jobs * (sum(limits[s.kind] + 10 * args.seconds for s in systems) + STARTING)
    with tempfile.TemporaryDirectory() as folder:
        task = {
            "model": model, "batch": batch, "systems": args.systems, "precision": args.precision,
            "seconds": args.seconds, "limits": limits, "caches": folder, "device": args.device,
            "layers": bool(args.report), "turn": str(TURN) if args.jobs > 1 else "",
            "training": args.training,
        }  # fmt: skip
        command = [sys.executable, __file__, "--worker", json.dumps(task)]
        try:
            rows, _ = run_alone(command, {**os.environ, **caches_in(Path(folder))}, longest)
        except RuntimeError as err:
            rows = [{"system": system.label, "failed": str(err)} for system in systems]
    for row in rows:
        case = {"model": titled(model, args), "batch": batch, "system": row["system"]}
        layers += [{**case, **layer} for layer in row.pop("layers", [])]
    return rows


def show(rows: Sequence[Row]) -> None:
    """Milliseconds by model and system, details, and how systems compare with Convoy."""
    from convoy.report import tables

    names = list(dict.fromkeys(row["system"] for row in rows))
    found = {(row["model"], row["batch"], row["system"]): row for row in rows}
    cases = list(dict.fromkeys(key[:2] for key in found))
    cells = [[*case, *(number(found.get((*case, n), {}), "ms") for n in names)] for case in cases]
    tables.show(("model", "N", *names), cells, "ms of one run")
    tables.show(DETAILS, [details(row) for row in rows], "details")
    for name in [name for name in names if name != "convoy"]:
        pairs = [(found.get((*c, name), {}), found.get((*c, "convoy"), {})) for c in cases]
        ratios = [a["ms"] / b["ms"] for a, b in pairs if "ms" in a and "ms" in b]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{name}: {mean:.3f} times convoy's ms in the geometric mean of {len(ratios)},"
                  f" {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip


def details(row: Row) -> tuple[object, ...]:
    """Cells of a row of the second table; None if a fact is missing."""
    wide = number(row, "spread")
    return (
        row["model"], row["batch"], row["system"], wide and wide + "!" * ("disturbed" in row),
        number(row, "call_ms"), number(row, "predicted_ms"), row.get("kernels"),
        number(row, "build_s", 1), f"{row['error']:.1e}" if "error" in row else None,
    )  # fmt: skip


def number(row: Row, key: str, digits: int = 4) -> str | None:
    return f"{row[key]:.{digits}f}" if key in row else None


if __name__ == "__main__":
    raise SystemExit(main())

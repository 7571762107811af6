#!/usr/bin/env python3
"""Convolutions of ResNet-50 one by one, forward and backward, beside PyTorch and cuDNN.

    python scripts/bench_resnet50_dgrad.py                      fprop, dgrad, wgrad; N = 8 and 256
    python scripts/bench_resnet50_dgrad.py --ops dgrad --batches 1 64 --out results
    python scripts/bench_resnet50_dgrad.py --list tvm-pr10110   the 19 of apache/tvm#10110
    python scripts/bench_resnet50_dgrad.py --list resnet50 tvm-pr10110   both; shared ones once
    python scripts/bench_resnet50_dgrad.py --from results.json  tables and picture again, no GPU

Every candidate is checked against float64 before it is timed. Writes OUT.json, OUT.md and, with
matplotlib, OUT.png, for a second list OUT-LIST.json and so on; prints tables on the way, and at the
end the layers for which kernel-only and end-to-end times choose different libraries.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from convoy.backends import registry
from convoy.records import environment
from convoy.records.record import Record
from convoy.records.store import RecordStore
from convoy.runtime import current_device
from layers import report
from layers.measure import CONVOY, CUDNN, Bench, Result, Save
from layers.workloads import DIRECTIONS, Layer, layers, read

#: Where PyTorch is not there to measure them: bytes and fp16 operations per second of an H200.
H200_CEILINGS = report.Ceilings(4.3e12, 790e12, measured=False)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--list", nargs="+", default=["resnet50"], help="workload lists: names or JSON files"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 256])
    parser.add_argument("--ops", nargs="+", choices=DIRECTIONS, default=list(DIRECTIONS))
    parser.add_argument("--layer", default="", help="only layers whose label contains this")
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    parser.add_argument("--backends", nargs="+", default=["cudnn", "cutlass", "hopper"])
    parser.add_argument(
        "--candidates", type=int, default=100, help="most of a backend, for a layer"
    )
    parser.add_argument("--budget-ms", type=float, default=20.0, help="samples of one candidate")
    parser.add_argument("--ready", action="store_true", help="only kernels compiled already")
    parser.add_argument("--no-torch", action="store_true", help="without PyTorch beside")
    parser.add_argument("--records", type=Path, help="append every measurement to this file")
    parser.add_argument("--out", type=Path, default=Path("resnet50-dgrad"), help="path, no suffix")
    parser.add_argument("--from", dest="source", type=Path, help="results to show again")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.source:
        data = json.loads(options.source.read_text())
        results = [Result.from_json(entry) for entry in data["results"]]
        ceilings = report.Ceilings(**data["ceilings"])
        for name, found in report.groups(results):
            print(report.as_text(name, found, ceilings))
        write(options.out, data["title"], data["how"], data["environment"], results, ceilings)
        return 0
    return bench(options)


def bench(options: argparse.Namespace) -> int:
    lists: dict[str, tuple[str, list[Layer]]] = {}
    for source in options.list:
        data = read(source)
        found = layers(data, options.batches, options.ops, options.dtype)
        lists[source] = data["name"], [layer for layer in found if options.layer in layer.label]
    peer, ceilings = (None, H200_CEILINGS) if options.no_torch else start_torch()
    backends = [registry.get(name) for name in options.backends]
    here = environment.current()
    runner = Bench(
        backends,
        current_device(),
        most=options.candidates,
        budget_ms=options.budget_ms,
        peer=peer,
        save=_saver(options.records, here, backends) if options.records else None,
        ready=options.ready,
    )
    signal.signal(signal.SIGTERM, _stop)
    started = time.monotonic()
    problems = {layer.workload: layer for _, chosen in lists.values() for layer in chosen}
    print(
        f"{', '.join(name for name, _ in lists.values())}: {len(problems)} problems; compiling ...",
        flush=True,
    )
    runner.compile(list(problems.values()))
    print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
    how = (
        f"Backends {', '.join(options.backends)}; up to {options.candidates} candidates of each"
        f" for a problem and {options.budget_ms:g} ms of samples for a candidate. Every result was"
        " checked against float64 first."
        + (" Kernels that were not compiled are left out." if options.ready else "")
    )
    everything: list[Result] = []
    try:
        for source, (name, chosen) in lists.items():
            results: list[Result] = []
            out = options.out
            if everything:
                out = out.with_name(f"{out.name}-{Path(source).stem}")
            try:
                run(runner, chosen, ceilings, results)
            finally:  # what was measured before an error or an interrupt is kept
                write(out, f"{name} on {here.gpu}", how, here.to_json(), results, ceilings)
            everything += results
            print(report.disagreement_text(results))
    finally:
        if peer is not None:
            peer.close()
    measured = {r.layer.workload: r.measured for r in everything}
    print(f"{sum(measured.values())} candidates in {time.monotonic() - started:.0f} s")
    return 1 if any(report.CONVOY not in r.best for r in everything) else 0


def _stop(number: int, _frame: Any) -> None:
    """Ends the run as an interrupt does, so that what was measured is written."""
    raise KeyboardInterrupt(f"signal {number}")


def start_torch() -> tuple[Any, report.Ceilings]:
    """PyTorch's process and the ceilings that it measured; those of an H200 without it."""
    from peers.convolutions import Torch

    peer = Torch()
    found = peer.ceilings
    if "failure" in found:
        print(f"no PyTorch beside: {found['failure']}")
        return None, H200_CEILINGS
    print(
        f"{found['device']}, torch {found['torch']}: copies {found['bandwidth'] / 1e12:.2f} TB/s,"
        f" products {found['flops'] / 1e12:.0f} TFLOP/s"
    )
    return peer, report.Ceilings(found["bandwidth"], found["flops"])


def run(
    runner: Bench, chosen: Sequence[Layer], ceilings: report.Ceilings, results: list[Result]
) -> None:
    """Measures all layers into ``results``; a line for each where there is no terminal to show
    progress on, and a table for each direction and batch."""
    pending: list[Result] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns) as progress:
        task = progress.add_task("measuring", total=len(chosen))

        def say(words: str) -> None:
            progress.console.print(words, markup=False, highlight=False, soft_wrap=True)

        for result in runner.run(chosen):
            results.append(result)
            if pending and _group(pending[0]) != _group(result):
                say(_table(pending, ceilings))
                pending = []
            pending.append(result)
            progress.update(task, advance=1, description=_line(result))
            if not progress.console.is_terminal:
                say(_line(result))
            for failure in result.failures:
                say(f"{result.layer.workload.key}: {failure}")
    if pending:
        print(_table(pending, ceilings))


def write(
    out: Path,
    title: str,
    how: str,
    measured_in: dict[str, Any],
    results: Sequence[Result],
    ceilings: report.Ceilings,
) -> None:
    """OUT.json, OUT.md and, where matplotlib is installed, OUT.png."""
    out.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "title": title,
        "how": how,
        "environment": measured_in,
        "ceilings": vars(ceilings),
        "results": [result.to_json() for result in results],
    }
    out.with_name(out.name + ".json").write_text(json.dumps(data, indent=1) + "\n")
    out.with_name(out.name + ".md").write_text(report.as_markdown(title, how, results, ceilings))
    try:
        report.plot(results, out.with_name(out.name + ".png"))
    except ImportError:
        print("no picture: matplotlib is not installed")


def _saver(path: Path, here: environment.Environment, backends: Sequence[Any]) -> Save:
    """Appends measurements as records, each with the libraries that it depends on."""
    store = RecordStore([], write_to=path)
    by_name = {backend.name: backend for backend in backends}

    def save(workload: Any, candidate: Any, measurement: Any) -> None:
        backend = by_name[candidate.backend]
        narrowed = here.narrowed(backend.libraries, backend.kernel_source(candidate))
        store.append(Record(workload, candidate, measurement, narrowed))

    return save


def _line(result: Result) -> str:
    w = result.layer.workload
    return (
        f"{w.op} N={w.n} {result.layer.label}: {result.us(CONVOY):.1f} us,"
        f" {result.us(CONVOY) / result.us(CUDNN):.2f} of cuDNN ({result.choice()})"
    )


def _group(result: Result) -> tuple[str, int]:
    return result.layer.workload.op, result.layer.workload.n


def _table(results: Sequence[Result], ceilings: report.Ceilings) -> str:
    return "\n".join(report.as_text(name, r, ceilings) for name, r in report.groups(results))


if __name__ == "__main__":
    sys.exit(main())

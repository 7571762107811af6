#!/usr/bin/env python3
"""Time convolutions one by one, forward and backward, beside PyTorch and cuDNN.

    python scripts/bench_layers.py                              ResNet-50; N = 8 and 256
    python scripts/bench_layers.py --ops dgrad --batches 1 64 --out results
    python scripts/bench_layers.py --list tvm-pr10110           the 19 of apache/tvm#10110
    python scripts/bench_layers.py --list resnet50 tvm-pr10110  both; shared ones once
    python scripts/bench_layers.py --from results.json          the tables again, no GPU

Every candidate is checked against float64 before it is timed. Writes OUT.json and OUT.md, for a
second list OUT-LIST.json and so on; prints tables on the way, and at the end the layers for which
kernel-only and end-to-end times choose different libraries.
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

sys.path.insert(0, str(Path(__file__).resolve().parent))

from convoy.backends import registry
from convoy.records import environment
from convoy.runtime import current_device
from harness import layer_report as report
from harness import rows
from harness.layer_lists import DIRECTIONS, Layer, layers, read
from harness.layers import CONVOY, CUDNN, Bench, Result

#: Bytes and fp16 operations per second of an H200, where PyTorch is not there to measure them.
H200_CEILINGS = report.Ceilings(4.3e12, 790e12, measured=False)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--list", nargs="+", default=["resnet50"], help="workload lists: names or JSON files")
    add("--batches", nargs="+", type=int, default=[8, 256])
    add("--ops", nargs="+", choices=DIRECTIONS, default=list(DIRECTIONS))
    add("--layer", default="", help="only layers whose label contains this")
    add("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    add("--backends", nargs="+", default=["cudnn", "cutlass", "hopper"])
    add("--candidates", type=int, default=100, help="most of a backend, for a layer")
    add("--budget-ms", type=float, default=20.0, help="samples of one candidate")
    add("--ready", action="store_true", help="only kernels compiled already")
    add("--no-torch", action="store_true", help="without PyTorch beside")
    add("--out", type=Path, default=Path("layers"), help="path, no suffix")
    add("--from", dest="source", type=Path, help="results to show again")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
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
    """Measure all lists; returns the exit status."""
    lists: dict[str, tuple[str, list[Layer]]] = {}
    for source in options.list:
        data = read(source)
        found = layers(data, options.batches, options.ops, options.dtype)
        lists[source] = data["name"], [layer for layer in found if options.layer in layer.label]
    peer, ceilings = (None, H200_CEILINGS) if options.no_torch else start_torch()
    backends = [registry.get(name) for name in options.backends]
    here = environment.current()
    runner = Bench(
        backends, current_device(), most=options.candidates, budget_ms=options.budget_ms,
        peer=peer, ready=options.ready,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, _stop)
    started = time.monotonic()
    problems = {layer.workload: layer for _, chosen in lists.values() for layer in chosen}
    names = ", ".join(name for name, _ in lists.values())
    print(f"{names}: {len(problems)} problems; compiling ...", flush=True)
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
            finally:  # keep the results of before an error or an interrupt
                write(out, f"{name} on {here.gpu}", how, here.to_json(), results, ceilings)
            everything += results
            print(report.disagreement_text(results))
    finally:
        if peer is not None:
            peer.close()
    measured = {r.layer.workload: r.measured for r in everything}
    print(f"{sum(measured.values())} candidates in {time.monotonic() - started:.0f} s")
    return 1 if any(CONVOY not in r.best for r in everything) else 0


def _stop(number: int, _frame: Any) -> None:
    """End the run as an interrupt does, so that the results are written."""
    raise KeyboardInterrupt(f"signal {number}")


def start_torch() -> tuple[Any, report.Ceilings]:
    """PyTorch's process and the ceilings that it measured; those of an H200 without it."""
    from harness.torch_layers import Torch

    peer = Torch()
    found = peer.ceilings
    if "failure" in found:
        print(f"no PyTorch beside: {found['failure']}")
        return None, H200_CEILINGS
    print(
        f"{found['device']}, torch {found['torch']}: copies {found['bandwidth'] / 1e12:.2f} TB/s,"
        f" GEMMs {found['flops'] / 1e12:.0f} TFLOP/s"
    )
    return peer, report.Ceilings(found["bandwidth"], found["flops"])


def run(
    runner: Bench, chosen: Sequence[Layer], ceilings: report.Ceilings, results: list[Result]
) -> None:
    """Measure all layers into ``results``: a line for each if there is no terminal to show
    progress on, a table for each direction and batch size."""
    with rows.progress() as bar:
        task = bar.add_task("measuring", total=len(chosen))
        for result in runner.run(chosen):
            results.append(result)
            bar.update(task, advance=1, description=_line(result))
            if not bar.console.is_terminal:
                print(_line(result), flush=True)
            for failure in result.failures:
                print(f"{result.layer.workload.key}: {failure}", flush=True)
    for name, found in report.groups(results):
        print(report.as_text(name, found, ceilings))


def write(
    out: Path, title: str, how: str, measured_in: dict[str, Any], results: Sequence[Result],
    ceilings: report.Ceilings,
) -> None:  # fmt: skip
    """Write OUT.json and OUT.md."""
    rows.write(
        out.with_name(out.name + ".json"), title=title, how=how, environment=measured_in,
        ceilings=vars(ceilings), results=[result.to_json() for result in results],
    )  # fmt: skip
    out.with_name(out.name + ".md").write_text(report.as_markdown(title, how, results, ceilings))


def _line(result: Result) -> str:
    w = result.layer.workload
    return (
        f"{w.op} N={w.n} {result.layer.label}: {result.us(CONVOY):.1f} us,"
        f" {result.us(CONVOY) / result.us(CUDNN):.2f} of cuDNN ({result.choice()})"
    )


if __name__ == "__main__":
    sys.exit(main())

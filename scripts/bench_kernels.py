#!/usr/bin/env python3
"""Time the kernels of one family, and the cost of launching kernels.

    python scripts/bench_kernels.py times --layer /2 --ops dgrad     own kernels, strided dgrad
    python scripts/bench_kernels.py times --backend cutlass --list tvm-pr10110 --batches 8
    python scripts/bench_kernels.py times --backend depthwise --list grouped --ops fprop
    python scripts/bench_kernels.py launch --out launch.json

``times`` measures every candidate that a backend proposes for each layer, in a process that may
hang or crash, beside PyTorch (cuDNN in benchmark mode); every result is checked against float64
first. ``launch`` is the experiment of NVIDIA's "Getting Started with CUDA Graphs": short kernels
synchronized one by one, launched asynchronously, and in a graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import launch_cost
from harness.layer_lists import DIRECTIONS, Layer, layers, read
from harness.rows import Bench, Row, one

COLUMNS = ("kernel", "us", "+-", "TFLOP/s", "GB/s", "of PyTorch", "error")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(dest="command", required=True)
    add = commands.add_parser("times").add_argument
    add("--backend", default="hopper")
    add("--list", default="resnet50", help="workload list: a name or a JSON file")
    add("--layer", default="", help="only layers whose label contains this")
    add("--batches", nargs="+", type=int, default=[8, 256])
    add("--ops", nargs="+", choices=DIRECTIONS, default=list(DIRECTIONS))
    add("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    add("--kernel", default="", help="only kernels whose name contains this")
    add("--candidates", type=int, default=14, help="most for a layer")
    add("--no-torch", action="store_true", help="without PyTorch beside")
    add("--out", default="", help="JSON file to write")
    commands.add_parser("launch").add_argument("--out", default="", help="JSON file to write")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "launch":
        return launch_cost.run(options.out)
    return times(options)


def times(options: argparse.Namespace) -> int:
    """Measure every candidate of each layer; returns 1 if one failed."""
    from convoy.report import tables
    from convoy.tune.measurer import Spec
    from convoy.tune.process import MeasuringProcess
    from harness.torch_layers import Torch

    listed = layers(read(options.list), options.batches, options.ops, options.dtype)
    chosen = [layer for layer in listed if options.layer in layer.label]
    process = MeasuringProcess(Spec(options={"backends": [options.backend], "cold": False}))
    peer = None if options.no_torch else Torch()
    bench = Bench(f"kernels of {options.backend}", options.out)
    try:
        jobs = candidates(chosen, process.describe()[0], options)
        for layer, found in jobs:
            w = layer.workload
            fixed = {"op": w.op, "n": w.n, "layer": layer.label}
            start = len(bench.rows)
            if peer is not None:
                bench.run_many(
                    {**fixed, "kernel": "PyTorch"}, functools.partial(one, from_peer, peer, w)
                )
            for candidate in found:
                bench.run_many(
                    {**fixed, "kernel": candidate.kernel},
                    functools.partial(one, measured, process, w, candidate),
                )
            tables.show(
                COLUMNS, table(layer, bench.rows[start:]), " ".join(map(str, fixed.values()))
            )
    finally:
        process.close()
        if peer is not None:
            peer.close()
    return 1 if bench.failures() else 0


def candidates(
    chosen: Sequence[Layer], device: Any, options: argparse.Namespace
) -> list[tuple[Layer, list[Any]]]:
    """The candidates of each layer that the backend takes, their kernels compiled."""
    from convoy.backends import registry
    from convoy.backends.kernels.backend import KernelBackend
    from convoy.ir.candidate import Decline

    backend = registry.get(options.backend)
    if isinstance(backend, KernelBackend):
        backend = KernelBackend(dataclasses.replace(backend.family, limit=options.candidates))
    jobs = []
    for layer in chosen:
        proposed = backend.propose(layer.workload, device)
        if isinstance(proposed, Decline):
            print(f"{layer.workload.key}: {proposed.reason}", flush=True)
            continue
        found = [c for c in proposed if options.kernel in c.kernel][: options.candidates]
        jobs.append((layer, found))
    backend.prepare([(layer.workload, c) for layer, found in jobs for c in found], device)
    return jobs


def measured(process: Any, workload: Any, candidate: Any) -> Row:
    """Times of a candidate. Raises RuntimeError with the reason if it failed."""
    found, _ = process.measure(workload, candidate, None)
    if not found.ok:
        raise RuntimeError(found.failure)
    return {"us": found.kernel_us, "spread_us": found.kernel_spread_us, "error": found.error}


def from_peer(peer: Any, workload: Any) -> Row:
    answer = peer.time(workload.to_json())
    if "failure" in answer:
        raise RuntimeError(answer["failure"])
    return {"us": answer["kernel_us"]}


def table(layer: Layer, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Cells of one layer's kernels, fastest first."""
    w = layer.workload
    timed = sorted((row for row in rows if "us" in row), key=lambda row: row["us"])
    peer = next((row["us"] for row in timed if row["kernel"] == "PyTorch"), None)
    return [
        (
            row["kernel"], row["us"], row.get("spread_us"), w.flops / row["us"] / 1e6,
            w.bytes_moved / row["us"] / 1e3, row["us"] / peer if peer else None,
            f"{row['error']:.1e}" if "error" in row else None,
        )
        for row in timed
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

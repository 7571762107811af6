#!/usr/bin/env python3
"""Time the kernels of one family, and the cost of launching kernels.

    python scripts/bench_kernels.py times --layer /2 --ops dgrad     own kernels, strided dgrad
    python scripts/bench_kernels.py times --backend cutlass --list tvm-pr10110 --batches 8
    python scripts/bench_kernels.py once --ops dgrad wgrad           for compute-sanitizer
    python scripts/bench_kernels.py launch --out launch.json

``times`` measures every candidate that a backend proposes for each layer, in a process that may
hang or crash, beside PyTorch (cuDNN in benchmark mode); every result is checked against float64
first. ``once`` launches kernels once on small problems of odd sizes and compares them with float64:
``compute-sanitizer --tool memcheck --error-exitcode 9 python scripts/bench_kernels.py once``.
``launch`` is the experiment of NVIDIA's "Getting Started with CUDA Graphs": short kernels
synchronized one by one, launched asynchronously, and in a graph.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import launch_cost
from harness.layer_lists import DIRECTIONS, Layer, layers, read
from harness.rows import Bench, Row

COLUMNS = ("kernel", "us", "+-", "TFLOP/s", "GB/s", "of PyTorch", "error")

#: Problems of ``once``: odd sizes, uneven padding, strides 1 to 3, few and many tiles in a block.
BASE: dict[str, Any] = {"n": 3, "h": 17, "w": 23, "c": 24, "k": 40, "r": 3, "s": 3}
CHANGES: list[dict[str, Any]] = [
    {"stride": (2, 2), "padding": (1, 1, 1, 1)},
    {"stride": (2, 2), "padding": (0, 1, 2, 1), "c": 136, "k": 72},
    {"stride": (3, 3), "r": 1, "s": 1, "padding": (0, 0, 0, 0)},
    {"padding": (2, 1, 0, 1), "c": 136, "k": 200},
    {"r": 1, "s": 1, "c": 264, "k": 128},
    {"stride": (2, 2), "r": 7, "s": 7, "padding": (3, 3, 3, 3), "c": 3, "k": 64, "w": 24},  # stem
    {"stride": (3, 2), "r": 4, "s": 5, "padding": (0, 1, 2, 1), "c": 4, "k": 72, "w": 46},
]


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
    add = commands.add_parser("once").add_argument
    add("--ops", nargs="+", choices=DIRECTIONS, default=["dgrad", "wgrad"])
    add("--backends", nargs="+", default=["hopper", "cutlass"])
    add("--kernel", default="", help="only kernels whose name contains this")
    add("--most", type=int, default=100, help="kernels of a problem and backend")
    commands.add_parser("launch").add_argument("--out", default="", help="JSON file to write")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "once":
        return once(options)
    if options.command == "launch":
        return launch_cost.run(options.out)
    return times(options)


def times(options: argparse.Namespace) -> int:
    """Measure every candidate of each layer; returns 1 if one failed."""
    from convoy.report import tables
    from convoy.tune.measurer import Spec
    from convoy.tune.process import MeasuringProcess
    from harness.torch_layers import Torch

    chosen = layers(read(options.list), options.batches, options.ops, options.dtype)
    chosen = [layer for layer in chosen if options.layer in layer.label]
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
                bench.run_many({**fixed, "kernel": "PyTorch"}, lambda w=w: [from_peer(peer, w)])
            for candidate in found:
                bench.run_many(
                    {**fixed, "kernel": candidate.kernel},
                    lambda w=w, c=candidate: [measured(process, w, c)],
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
    from convoy.ir.candidate import Decline

    backend = registry.get(options.backend)
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


def once(options: argparse.Namespace) -> int:
    """Launch kernels once, a line for each; returns 1 if one is wrong or does not start."""
    from convoy.backends import registry
    from convoy.backends.load import load_candidate
    from convoy.errors import ConvoyError
    from convoy.ir.candidate import Decline
    from convoy.ir.workload import Workload
    from convoy.measure import protocol
    from convoy.runtime import current_device

    device = current_device()
    wrong = 0
    for workload in [Workload(op, **BASE | change) for op in options.ops for change in CHANGES]:
        problem = protocol.make_problem(workload, np.random.default_rng(1))
        for name in options.backends:
            backend = registry.get(name)
            found = backend.propose(workload, device)
            if isinstance(found, Decline):
                continue
            chosen = [c for c in found if options.kernel in c.kernel][: options.most]
            backend.prepare([(workload, candidate) for candidate in chosen], device)
            for candidate in chosen:
                try:
                    call = load_candidate(backend, workload, candidate, device)
                    error = protocol.error_of(problem, call)
                except (ConvoyError, RuntimeError) as failure:
                    print(f"FAILED {workload.key} {candidate.key}: {failure}", flush=True)
                    wrong += 1
                    continue
                right = error <= protocol.tolerance(workload)
                wrong += not right
                verdict = "right" if right else "WRONG"
                print(f"{verdict} {error:.1e} {workload.key} {candidate.key}", flush=True)
    print(f"{wrong} wrong" if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks and times the Hopper backend's kernels on the GPU, against float64 and cuDNN.

    export PYTHONPATH=python                          where convoy is not installed
    python scripts/bench_hopper.py                    everything: some five minutes
    python scripts/bench_hopper.py --no-check         times only
    python scripts/bench_hopper.py --no-time          correctness only
    python scripts/bench_hopper.py --batch 8 --layer dgrad_3x3 --kernel pingpong

1. Compiles all kernels (3 s each, in parallel; cached).
2. Check: every kernel over odd sizes, strides 2 and 3, uneven padding, filters 1 to 7; on 132
   blocks and on 2, where each block works on many tiles; outputs poisoned, guards around them, also
   replayed from a graph. A kernel that hangs or crashes is named and does not stop the run.
3. Time: dgrad of ResNet-50's strided layers and stem, fprop of its stem: the backend's candidates
   and PyTorch (cuDNN, benchmark mode) in the same process, device time of a graph of 20 launches.

Prints a line for everything that is wrong, then the table; exit status 1 if a check failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hopper_cases as cases
import hopper_lab as lab
from convoy.backends.kernels.cache import Entry
from convoy.backends.kernels.compile import compile_many
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.kernels import Sm90Kernel
from convoy.ir.candidate import Decline
from convoy.ir.device import Device

Results = list[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", default="8,256", help="batch sizes to time")
    parser.add_argument("--layer", default="", help="only layers whose name contains this")
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--candidates", type=int, default=14, help="kernels timed for each layer")
    parser.add_argument("--no-check", action="store_true", help="times only")
    parser.add_argument("--no-time", action="store_true", help="correctness only")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--dump-jobs", type=Path, help="write the check jobs here, run nothing")
    options = parser.parse_args(arguments)
    batches = [int(n) for n in options.batch.split(",")]

    layers = [] if options.no_time else cases.layers(batches, options.layer)
    launches = {}
    backend = sm90_backend(limit=options.candidates)
    for name, workload in layers:
        proposed = backend.propose(workload, Device())
        assert not isinstance(proposed, Decline), proposed
        found = [backend.launch_of(candidate) for candidate in proposed]
        launches[name] = [x for x in found if options.kernel in x.kernel.name]
    checked = [] if options.no_check else [k for k in cases.kernels() if options.kernel in k.name]
    timed = {x.kernel for found in launches.values() for x in found}
    libraries, failures = compile_kernels({*checked, *timed})

    if options.dump_jobs:  # input of `hopper_lab.py --worker`, for compute-sanitizer
        jobs = cases.check_jobs({k: libraries[k] for k in checked if k in libraries})
        options.dump_jobs.write_text("".join(json.dumps(job.to_json()) + "\n" for job in jobs))
        return 1 if failures else 0

    results: Results = []
    if checked:
        failures += check(checked, libraries, results)
    for name, workload in layers:
        jobs = [lab.Job("cuDNN (PyTorch)", workload, time=True)]
        jobs += [
            lab.Job(
                f"{x.kernel.name}.swizzle{x.swizzle}",
                workload,
                libraries[x.kernel],
                x.swizzle,
                time=True,
            )
            for x in launches[name]
            if x.kernel in libraries
        ]
        failures += time_layer(name, jobs, results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if layers:
        print_summary(results)
    print(f"{failures} failures" if failures else "all right")
    return 1 if failures else 0


def compile_kernels(kernels: set[Sm90Kernel]) -> tuple[dict[Sm90Kernel, str], int]:
    """Paths of the compiled libraries, and how many did not compile."""
    print(f"compiling {len(kernels)} kernels ...", flush=True)
    start = time.monotonic()
    libraries, failures = {}, 0
    for kernel, entry in compile_many(kernels).items():
        if isinstance(entry, Entry):
            libraries[kernel] = str(entry.path)
        else:
            failures += 1
            print(f"FAILED {kernel.name}: {entry}")
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    return libraries, failures


def check(
    kernels: Sequence[Sm90Kernel],
    libraries: dict[Sm90Kernel, str],
    results: Results,
) -> int:
    """Runs all check jobs; prints what fails, and one line for each kernel."""
    jobs = cases.check_jobs({k: libraries[k] for k in kernels if k in libraries})
    print(f"checking {len(libraries)} kernels in {len(jobs)} runs ...", flush=True)
    start = time.monotonic()
    passed: collections.Counter[str] = collections.Counter()
    failed: collections.Counter[str] = collections.Counter()
    worst: dict[str, float] = {}
    for job, result in lab.run_side_by_side(jobs):
        results.append({"kind": "check", **job.to_json(), **vars(result)})
        name = job.name
        if result.error:
            failed[name] += 1
            if failed[name] <= 5:
                print(
                    f"WRONG {name} swizzle {job.swizzle} blocks {result.blocks}"
                    f" {job.workload.key}: {result.error}",
                    flush=True,
                )
        else:
            passed[name] += 1
            worst[name] = max(worst.get(name, 0.0), result.relative)
    for name in dict.fromkeys(job.name for job in jobs):
        print(
            f"  {name:56s} right {passed[name]:4d}  wrong {failed[name]:4d}"
            f"  largest relative error {worst.get(name, float('nan')):.2e}"
        )
    print(f"checked in {time.monotonic() - start:.0f} s", flush=True)
    return failed.total()


def time_layer(name: str, jobs: Sequence[lab.Job], results: Results) -> int:
    """Times one layer and prints its table, fastest first."""
    rows, failures, peer = [], 0, float("nan")
    for job, result in lab.run(jobs):
        results.append({"kind": "time", "layer": name, **job.to_json(), **vars(result)})
        if result.error:
            failures += 1
            print(f"WRONG {name} {job.name}: {result.error}", flush=True)
        elif not job.library:
            peer = result.us
        rows.append((result.us if not result.error else float("inf"), job, result))
    w = jobs[0].workload
    floor = w.bytes_moved / 4.3e6, w.flops / 790e6
    print(
        f"\n{name}: {w.flops / 1e9:.1f} GFLOP, {w.bytes_moved / 1e6:.0f} MB;"
        f" floor {floor[0]:.1f} us by bytes at 4.3 TB/s, {floor[1]:.1f} us by arithmetic at"
        " 790 TFLOP/s"
    )
    print(f"  {'kernel':62s} {'us':>8s} {'+-':>6s} {'TFLOP/s':>8s} {'GB/s':>6s} {'of cuDNN':>8s}")
    for us, job, result in sorted(rows, key=lambda row: row[0]):
        if result.error:
            print(f"  {job.name:62s} {result.error[:40]}")
            continue
        print(
            f"  {job.name:62s} {us:8.2f} {result.spread_us:6.2f} {w.flops / us / 1e6:8.1f}"
            f" {w.bytes_moved / us / 1e3:6.0f} {us / peer:8.3f}",
            flush=True,
        )
    return failures


def print_summary(results: Results) -> None:
    """One line a layer: cuDNN, the best kernel, the one that was proposed first."""
    print(f"\n{'layer':34s} {'cuDNN us':>9s} {'best us':>9s} {'ratio':>6s} {'first us':>9s}  best")
    for name in dict.fromkeys(r["layer"] for r in results if r["kind"] == "time"):
        rows = [r for r in results if r["kind"] == "time" and r["layer"] == name]
        peer = next((r["us"] for r in rows if not r["library"] and not r["error"]), float("nan"))
        own = [r for r in rows if r["library"]]
        right = [r for r in own if not r["error"]]
        if not right:
            print(f"{name:34s} {peer:9.2f}  no kernel is right")
            continue
        best = min(right, key=lambda r: r["us"])
        first = own[0]["us"] if not own[0]["error"] else float("nan")
        print(
            f"{name:34s} {peer:9.2f} {best['us']:9.2f} {best['us'] / peer:6.3f} {first:9.2f}"
            f"  {best['name']}"
        )


if __name__ == "__main__":
    sys.exit(main())

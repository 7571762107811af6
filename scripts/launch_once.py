#!/usr/bin/env python3
"""Launches gradient kernels once on small problems, for compute-sanitizer; PyTorch not needed.

    compute-sanitizer --tool memcheck  --error-exitcode 9 python scripts/launch_once.py
    compute-sanitizer --tool racecheck --error-exitcode 9 python scripts/launch_once.py --most 3
    ... launch_once.py --ops fprop wgrad --backends hopper    the stem's other kernels

Odd sizes, uneven padding, strides 1 to 3, few and many tiles a block. Results are compared with
float64 as well. Prints the kernels that ran; exit status 1 where one was wrong or did not start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.backends import registry
from convoy.errors import ConvoyError
from convoy.ir.candidate import Decline
from convoy.ir.workload import Workload
from convoy.measure import protocol
from convoy.runtime import create_module, current_device

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


def problems(ops: Sequence[str]) -> list[Workload]:
    return [Workload(op, **BASE | change) for op in ops for change in CHANGES]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ops", nargs="+", default=["dgrad", "wgrad"], choices=["fprop", "dgrad", "wgrad"]
    )
    parser.add_argument("--backends", nargs="+", default=["hopper", "cutlass"])
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--most", type=int, default=100, help="kernels of a problem and backend")
    options = parser.parse_args(arguments)
    device = current_device()
    wrong = 0
    for workload in problems(options.ops):
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
                    binary = backend.build(workload, candidate, device)
                    entry = {**binary.entry, "symbol": "run"}
                    run = create_module([entry], binary.blobs, arch=device.arch)["run"]
                    error = protocol.error_of(problem, run)
                except (ConvoyError, RuntimeError) as failure:
                    print(f"FAILED {workload.key} {candidate.key}: {failure}", flush=True)
                    wrong += 1
                    continue
                right = error <= protocol.tolerance(workload)
                wrong += not right
                word = "right" if right else "WRONG"
                print(f"{word} {error:.1e} {workload.key} {candidate.key}", flush=True)
    print(f"{wrong} wrong" if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

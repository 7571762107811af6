"""`tvm.autotvm.callback`: what a tuner calls with each result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tuning.measuring import Callback, Log, MeasureInput, MeasureResult

__all__ = ["log_to_file", "progress_bar"]

log_to_file = Log


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Return a callback that prints the rate of the latest trial, the best one and the progress.

    Args:
        total: Number of trials.
        prefix: Printed first.
        si_prefix: "G" for GFLOPS, "M" for MFLOPS, "" for FLOPS and so on.
    """
    unit = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}[si_prefix]
    done, best = 0, 0.0

    def show(tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal done, best
        rate = 0.0
        for given, result in zip(inputs, results, strict=True):
            done += 1
            if result.error_no == 0:
                rate = given.task.flop / float(result.costs[0]) / unit
                best = max(best, rate)
        print(
            f"\r{prefix} Current/Best: {rate:7.2f}/{best:7.2f} {si_prefix}FLOPS | "
            f"Progress: ({done}/{total})",
            end="\n" if done >= total else "",
            file=sys.stderr,
            flush=True,
        )

    return show


__getattr__ = removed_names("autotvm.callback")

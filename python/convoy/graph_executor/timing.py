"""Timing runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm
    from tvm.runtime.module import BenchmarkResult


def measure(
    once: Callable[[], None],
    device: tvm.runtime.Device,
    number: int,
    repeat: int,
    min_repeat_ms: int | None = None,
    cooldown: tuple[float, int] = (0, 1),
) -> BenchmarkResult:
    """Time runs; the caller has run once before.

    Args:
        once: Runs once.
        device: The device to wait for at the end of each measurement.
        number: The number of runs in a measurement, which is their mean.
        repeat: The number of measurements.
        min_repeat_ms: Increase `number` until a measurement takes at least so long.
        cooldown: Milliseconds to sleep, and after how many measurements.

    Returns:
        TVM's BenchmarkResult, in seconds.
    """
    from tvm.runtime.module import BenchmarkResult

    pause_ms, every = cooldown
    device.sync()
    results: list[float] = []
    while len(results) < max(1, repeat):
        seconds = _mean_seconds(once, device, number)
        if min_repeat_ms and seconds * number * 1e3 < min_repeat_ms and number < 1_000_000:
            number = int(min(number * 10, max(number * 2, min_repeat_ms / 1e3 / seconds + 1)))
            continue
        results.append(seconds)
        if pause_ms and len(results) % max(1, every) == 0:
            time.sleep(pause_ms / 1e3)
    return BenchmarkResult(results)


def _mean_seconds(once: Callable[[], None], device: tvm.runtime.Device, number: int) -> float:
    start = time.perf_counter()
    for _ in range(max(1, number)):
        once()
    device.sync()
    return (time.perf_counter() - start) / max(1, number)

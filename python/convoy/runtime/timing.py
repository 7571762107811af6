"""Host-side timing of asynchronous runs."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def time_bursts(
    run: Callable[[], object],
    synchronize: Callable[[], object],
    repeat: int,
    number: int,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """Time ``repeat`` bursts of ``number`` runs enqueued back to back and synchronized once.

    Args:
        run: Enqueues one run.
        synchronize: Waits for the device.
        clock: Seconds.

    Returns:
        Microseconds of one run, the mean of each burst.
    """
    samples = []
    for _ in range(repeat):
        start = clock()
        for _ in range(number):
            run()
        synchronize()
        samples.append((clock() - start) / number * 1e6)
    return samples

"""Candidates that are built while others are measured.

A plan of cuDNN's that is compiled at run time takes up to a second, the random inputs and the
reference of a workload some 10 ms: neither needs the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ..ir.candidate import Candidate
from ..ir.workload import Workload
from ..threads import workers
from .local_measurements import LocalMeasurements

Pair = tuple[Workload, Candidate]
#: Seconds that the most promising candidates are waited for while others are built already: less
#: than a measurement takes.
PATIENCE_S = 0.005


class BuildsAhead:
    """Builds in threads, one candidate each.

    What fails to build here fails again where it is measured, and is reported there.
    """

    def __init__(self, measurements: LocalMeasurements) -> None:
        self._measurements = measurements
        # Half of the threads: the host's part of a launch is timed at the same time. Two, so that
        # one plan does not hold up the others.
        self._pool = ThreadPoolExecutor(max(2, workers() // 2), "convoy-build")
        self._builds: dict[Pair, Future[None]] = {}

    def close(self) -> None:
        """Start no more builds; those that are running are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, pairs: Sequence[Pair], urgent: int) -> None:
        """Build candidates, and no others that are waiting for a thread, unless the first
        ``urgent`` ones of them are built already.

        Kernels that a compiler has to make are compiled on all cores before this returns.
        """
        if all(map(self._is_built, pairs[:urgent])):
            return
        waiting = self._builds.keys() - set(pairs)
        for pair in [pair for pair in waiting if self._builds[pair].cancel()]:
            del self._builds[pair]
        new = [pair for pair in pairs if pair not in self._builds]
        if slow := [pair for pair in new if not self._measurements.is_ready(pair[1])]:
            self._measurements.prepare(slow)
        self._builds |= {pair: self._pool.submit(self._build, pair) for pair in new}

    def _build(self, pair: Pair) -> None:
        from ..measure import protocol

        self._measurements.prepare([pair])
        protocol.prepare(pair[0])

    def built(self, pairs: Sequence[Pair], most: int) -> list[Pair]:
        """Return up to ``most`` candidates that are built, one at least, the first ones where
        possible."""
        started = [pair for pair in pairs if pair in self._builds]
        builds = [self._builds[pair] for pair in started]
        wait(builds[:most], PATIENCE_S)
        wait(builds, return_when=FIRST_COMPLETED)
        return [pair for pair in started if self._is_built(pair)][:most]

    def _is_built(self, pair: Pair) -> bool:
        return pair in self._builds and self._builds[pair].done()

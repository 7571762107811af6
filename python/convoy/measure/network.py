"""Time whole networks: the one routine behind every comparison of compiled networks.

A network is timed through a *sampler*, which takes a number of samples and returns as many times
in microseconds. :func:`time_networks` takes its samples alternately, so that a drift of clocks or
temperature meets all networks alike. What one sample is differs by how the network will be run:

======================  ==================================================================
sampler                 one sample
======================  ==================================================================
:func:`graph_replays`   one replay of the function captured as a CUDA graph
:func:`calls`           one call of the function, synchronized
:func:`session_bursts`  one run of a session, of several enqueued back to back
:func:`bursts`          the same of anything that is enqueued by a call
:func:`synchronized`    one run of a session, synchronized after every kernel
======================  ==================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..ir.dtypes import numpy_dtype
from ..runtime.library import function
from ..runtime.timing import Clock, time_bursts
from .gpu_lock import gpu_lock

if TYPE_CHECKING:
    import tvm

    from ..runtime.session import Session

Sampler = Callable[[int], Iterable[float]]

ROUNDS, SAMPLES = 7, 20
#: Microseconds that the samples of a network may take in one round.
BUDGET_US = 20e3
#: Microseconds that one burst of a session should last, and the most runs in it.
BURST_US, MOST_RUNS = 8e3, 100


def spread_us(times: Sequence[float] | np.ndarray) -> float:
    """Half the distance from the 10th to the 90th percentile of times."""
    low, high = np.percentile(times, [10, 90])
    return float(high - low) / 2


@dataclass(frozen=True)
class Samples:
    """Times of single runs of a network, in microseconds."""

    us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        return float(np.median(self.us))

    @property
    def spread_us(self) -> float:
        """See :func:`spread_us`."""
        return spread_us(self.us)


def time_networks(
    samplers: Sequence[Sampler],
    rounds: int = ROUNDS,
    samples: int = SAMPLES,
    *,
    lock: Callable[[], AbstractContextManager[object]] = gpu_lock,
) -> list[Samples]:
    """Time networks alternately: in each of ``rounds`` every sampler is asked for ``samples``.

    Args:
        lock: Held for each round; by default that of the first GPU.

    Returns:
        The samples of each network, in the order of ``samplers``.
    """
    found: list[list[float]] = [[] for _ in samplers]
    for _ in range(rounds):
        with lock():
            for sampler, times in zip(samplers, found, strict=True):
                times.extend(sampler(samples))
    return [Samples(tuple(times)) for times in found]


def graph_replays(
    main: Callable[..., object],
    inputs: Sequence[tvm.runtime.Tensor],
    device: int = 0,
    *,
    budget_us: float = BUDGET_US,
) -> Sampler:
    """Sample replays of ``main(*inputs)`` captured as a CUDA graph, timed by events."""

    def sample(count: int) -> Iterable[float]:
        return list(function("measure.kernel_us")(main, inputs, device, 1, count, budget_us))

    return sample


def calls(
    main: Callable[..., object],
    inputs: Sequence[tvm.runtime.Tensor],
    device: int = 0,
    *,
    budget_us: float = BUDGET_US,
) -> Sampler:
    """Sample calls of ``main(*inputs)``, each synchronized."""

    def sample(count: int) -> Iterable[float]:
        return list(function("measure.e2e_us")(main, inputs, device, count, budget_us))

    return sample


def session_bursts(session: Session) -> Sampler:
    """Sample runs of a session, enqueued back to back in bursts of BURST_US."""
    number = runs_per_burst(min(session.time(repeat=2, number=2)) * 1e3)

    def sample(count: int) -> Iterable[float]:
        return [1e3 * ms for ms in session.time(count, number)]

    return sample


def bursts(run: Callable[[], object], synchronize: Callable[[], object], runs: int) -> Sampler:
    """Sample runs enqueued by ``run``, ``runs`` of them back to back; 1 makes each synchronized."""

    def sample(count: int) -> list[float]:
        run()  # another network may have run before
        synchronize()
        return time_bursts(run, synchronize, count, runs)

    return sample


def runs_per_burst(rough_us: float) -> int:
    """Runs of about ``rough_us`` that fill a burst of BURST_US."""
    return max(1, min(MOST_RUNS, int(BURST_US / rough_us)))


def synchronized(session: Session, clock: Clock = time.perf_counter) -> Sampler:
    """Sample runs of a session with a synchronization after every kernel."""

    def watch(
        function: object, name: str, before: bool, result: object, *arguments: object
    ) -> None:
        if not before and not name.startswith("vm."):
            session.synchronize()

    def sample(count: int) -> Iterable[float]:
        session.run()
        session.observe(watch)
        try:
            return time_bursts(session.run, session.synchronize, count, 1, clock)
        finally:
            session.observe(None)

    return sample


def fill_inputs(session: Session) -> None:
    """Set all inputs of a session to random numbers: zeros take less power, and so run at another
    clock."""
    rng = np.random.default_rng(0)
    for name, shape, dtype in session.input_info:
        session.set_input(name, _random(rng, shape, dtype))


def random_tensors(
    infos: Iterable[tuple[Sequence[int], str]], device: int = 0
) -> list[tvm.runtime.Tensor]:
    """Device tensors of random numbers for (shape, dtype) pairs."""
    import tvm

    rng = np.random.default_rng(0)
    return [tvm.runtime.tensor(_random(rng, s, d), tvm.cuda(device)) for s, d in infos]


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Uniform from -1 to 1; zeros for integers, which may be indices."""
    values = rng.uniform(-1, 1, shape) if "float" in dtype else np.zeros(shape)
    return values.astype(numpy_dtype(dtype))

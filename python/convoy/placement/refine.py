"""Evolutionary search by the simulated schedule, followed by measurements of the finalists.

The simulated time selects the few placements that are compiled, their measured times the result.
The seeds (the exact cover and each backend alone) take part in both rounds, so that the result
never measures worse than the best of them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import ConvoyError
from ..measure.network import spread_us
from ..partition.match_graph import MatchGraph
from .cover import Cover
from .evolve import Budget, Evolved, evolve, seed_covers
from .simulated import STREAMS, scheduled_us

#: Times a placement end to end: samples in microseconds.
Measure = Callable[[Cover], Sequence[float]]


@dataclass(frozen=True)
class Finalist:
    """A placement of the final round, a seed or an ``evolved`` one. ``measured_us`` is the median
    of its samples, ``spread_us`` half the distance from the 10th to the 90th percentile; None and
    0 if it was not measured, with the reason in ``failure``."""

    name: str
    cover: Cover
    simulated_us: float
    evolved: bool = False
    measured_us: float | None = None
    spread_us: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Refined:
    """The chosen placement, all finalists, and the search that led to them."""

    chosen: Finalist
    finalists: tuple[Finalist, ...]
    evolved: Evolved

    @property
    def cover(self) -> Cover:
        return self.chosen.cover


def refine(
    graph: MatchGraph,
    objective: str,
    backends: Sequence[str],
    measure: Measure | None = None,
    *,
    seconds: float = 60.0,
    budget: Budget | None = None,
    streams: int = STREAMS,
    seeds: Mapping[str, Cover] | None = None,
) -> Refined:
    """Refine the exact cover of a graph by its simulated schedule, and by measurement where
    ``measure`` is given.

    Seeds are the exact cover, that of each backend alone, and ``seeds``, by name. ``seconds``
    bounds the final round: all seeds are measured, then finalists while there is time.
    ``budget`` is that of the evolution. A finalist replaces the best seed only where its median is
    lower by more than the two spreads.
    """
    start = _distinct({**seed_covers(graph, objective, backends), **(seeds or {})})

    def simulated(cover: Cover) -> float:
        return scheduled_us(cover, streams)

    found = evolve(start, simulated, budget)
    finalists = [Finalist(name, cover, found.seeds[name]) for name, cover in start.items()]
    known = {_signature(c.cover) for c in finalists}
    for cover, us in ((found.cover, found.fitness_us), *found.finalists):
        if _signature(cover) not in known:
            known.add(_signature(cover))
            name = f"evolved {len(finalists) - len(start) + 1}"
            finalists.append(Finalist(name, cover, us, evolved=True))
    if measure is None:
        best = min(finalists, key=lambda c: c.simulated_us)
        return Refined(best, tuple(finalists), found)
    measured = _measured(finalists, len(start), measure, seconds)
    return Refined(_winner(measured, len(start)), tuple(measured), found)


def _distinct(covers: Mapping[str, Cover]) -> dict[str, Cover]:
    """Covers without duplicates of an earlier name."""
    found: dict[tuple[object, ...], str] = {}
    for name, cover in covers.items():
        found.setdefault(_signature(cover), name)
    return {name: covers[name] for name in found.values()}


def _signature(cover: Cover) -> tuple[object, ...]:
    return tuple(sorted(cover.picks))


def _measured(
    finalists: Sequence[Finalist], seeds: int, measure: Measure, seconds: float
) -> list[Finalist]:
    """Measure seeds, then finalists. A finalist is started only if the remaining time exceeds the
    longest measurement so far."""
    started = time.monotonic()
    result = []
    longest = 0.0
    for i, finalist in enumerate(finalists):
        begun = time.monotonic()
        if i >= seeds and begun - started + longest > seconds:
            result.append(replace(finalist, failure="no time left"))
            continue
        try:
            samples = measure(finalist.cover)
        except ConvoyError as err:
            result.append(replace(finalist, failure=str(err)))
            continue
        finally:
            longest = max(longest, time.monotonic() - begun)
        if not samples or not all(math.isfinite(sample) for sample in samples):
            result.append(replace(finalist, failure=f"no samples, or not numbers: {samples[:3]}"))
            continue
        median, spread = statistics.median(samples), spread_us(samples)
        result.append(replace(finalist, measured_us=median, spread_us=spread))
    return result


def _winner(measured: Sequence[Finalist], seeds: int) -> Finalist:
    """The best seed, unless a finalist beats it by more than both spreads."""

    def us(finalist: Finalist) -> float:
        return math.inf if finalist.measured_us is None else finalist.measured_us

    best_seed = min(measured[:seeds], key=us)
    if math.isinf(us(best_seed)):  # nothing was measured: the simulated order is all there is
        return min(measured, key=lambda c: c.simulated_us)
    better = [
        c for c in measured[seeds:] if us(c) < us(best_seed) - max(c.spread_us, best_seed.spread_us)
    ]
    return min(better, key=us, default=best_seed)

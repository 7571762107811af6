"""Choose the fusion and the kernel of each root, one root after another.

A longer subgraph saves the TVM kernel that would compute the rest, but fewer candidates can run it.
The cost of each alternative is its cheapest candidate plus an estimate of the operations that it
leaves to TVM.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from ..cost.native import leftover_us, native_us
from ..cost.offers import declined
from ..ir import objective as objectives
from ..ir.device import Device
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice
from ..ir.workload import Workload
from ..partition.alternatives import plausible
from ..partition.match_graph import MatchGraph, Subgraph
from .pareto import smallest_maximum
from .rank import make_choice, rank


def choose_greedily(
    graph: MatchGraph, offers: Mapping[Workload, Offers], objective: str
) -> list[Choice]:
    """Choose subgraphs and their kernels, one root after the other.

    Under ``stream`` host and device time are summed apart and the larger sum counts, so kernels
    are chosen jointly (pareto.py).
    """

    @functools.cache
    def cheapest(workload: Workload) -> float | None:
        found = offers[workload]
        if ranked := rank(found.measured, objective):
            return objectives.own_cost(ranked[0].measurement, objective)[0]
        return None if found.unmeasured else math.inf

    chosen = fuse(plausible(graph, graph.backends, declined(offers)), cheapest, graph.device)
    named = [(s.id, offers[s.require_workload()]) for s in chosen]
    runnable = [(name, found) for name, found in named if found.measured or found.unmeasured]
    return choose_kernels(runnable, objective)


def fuse(
    groups: Sequence[Sequence[Subgraph]],
    cost: Callable[[Workload], float | None],
    device: Device,
) -> list[Subgraph]:
    """Select the cheapest subgraph of each root that shares no operation with earlier ones.

    Args:
        groups: The alternatives of each root, longest first.
        cost: Time of the cheapest candidate in microseconds, infinite where none can run, None
            where none is measured: then the longest alternative is taken.
        device: The GPU.

    Returns:
        The chosen subgraphs. A root that TVM's own kernel suits is left out where that is
        the fastest, an optional one also where nothing is measured.
    """
    taken: set[str] = set()
    result = []
    for group in groups:
        free = [subgraph for subgraph in group if taken.isdisjoint(subgraph.ops)]
        best = _cheapest(free, cost, device) if free else None
        if best is not None:
            taken.update(best.ops)
            result.append(best)
    return result


def _cheapest(
    group: Sequence[Subgraph], cost: Callable[[Workload], float | None], device: Device
) -> Subgraph | None:
    """The cheapest alternative of a root; None where TVM's own kernel is to be used."""
    longest = group[0]
    costs = [(cost(subgraph.require_workload()), subgraph) for subgraph in group]
    known = [(c + leftover_us(s, longest, device), s) for c, s in costs if c is not None]
    finite = [(c, s) for c, s in known if c != math.inf]
    native = native_us(longest, device)
    if native is not None and (known or longest.optional):
        finite = [(c, s) for c, s in finite if c < native]
        if not finite:
            return None
    if not finite:
        return longest
    return min(finite, key=lambda item: (item[0], -len(item[1].ops)))[1]


def choose_kernels(named: Sequence[tuple[str, Offers]], objective: str) -> list[Choice]:
    """A kernel for each subgraph, given by its id and the offers of its workload.

    Raises:
        NoCandidate: No backend can run one of them.
    """
    firsts: list[Offer | None] = [None] * len(named)
    if objective == "stream":
        firsts = _jointly([found.measured for _, found in named])
    return [
        make_choice(name, found, objective, first)
        for (name, found), first in zip(named, firsts, strict=True)
    ]


def _jointly(offers: Sequence[Sequence[Offer]]) -> list[Offer | None]:
    """The offer of each subgraph, chosen jointly, where host and device time are summed apart."""
    positions = [i for i, found in enumerate(offers) if found]
    pairs = [[objectives.stream_sides(o.measurement) for o in offers[i]] for i in positions]
    result: list[Offer | None] = [None] * len(offers)
    for i, index in zip(positions, smallest_maximum(pairs), strict=True):
        result[i] = offers[i][index]
    return result

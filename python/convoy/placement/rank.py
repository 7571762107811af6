"""Rank the offers of one workload, and make a plan's choice from them."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from ..errors import NoCandidate
from ..ir import objective as objectives
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice

#: Offers are near that take at most this many times as long as the chosen one.
NEAR = 1.6
#: Number of near offers that a choice keeps.
NEAREST = 6


def rank(offers: Sequence[Offer], objective: str) -> list[Offer]:
    """Cheapest first.

    Those within the measured spread of the cheapest are ties, and ties go to: deterministic
    kernels, then the smaller workspace, then the backend's own order, then the name.
    """

    costs = [objectives.own_cost(offer.measurement, objective) for offer in offers]
    by_cost = sorted(range(len(costs)), key=lambda i: (costs[i][0], offers[i].candidate.key))
    if not by_cost:
        return []
    lowest, spread = costs[by_cost[0]]
    count = bisect.bisect_right(by_cost, lowest + spread, key=lambda i: costs[i][0])
    ranked = [offers[i] for i in by_cost]
    ties = sorted(
        ranked[:count],
        key=lambda offer: (
            not offer.candidate.deterministic,
            offer.candidate.workspace,
            offer.candidate.priority,
            offer.candidate.key,
        ),
    )
    return ties + ranked[count:]


def near(ranked: Sequence[Offer]) -> tuple[Offer, ...]:
    """Offers that take at most NEAR times as long as the first one.

    NEAREST of them, spread evenly over the ranks: the next ones are mostly the same kernel with
    another knob turned.
    """
    limit = NEAR * (ranked[0].measurement.kernel_us or 0.0)
    close = [o for o in ranked[1:] if o.measurement.ok and (o.measurement.kernel_us or 0) <= limit]
    if len(close) > NEAREST:
        step = (len(close) - 1) / (NEAREST - 1)
        close = [close[round(i * step)] for i in range(NEAREST)]
    return tuple(close)


def make_choice(
    subgraph: str, offers: Offers, objective: str, chosen: Offer | None = None
) -> Choice:
    """Make a plan's entry from a subgraph's offers; ``chosen`` defaults to the cheapest.

    Without any measurement the backend's own order decides.

    Raises:
        NoCandidate: No backend can run the workload.
    """
    ranked = rank(offers.measured, objective)
    if chosen is not None:
        ranked = [chosen, *(offer for offer in ranked if offer != chosen)]
    if not ranked:
        by_priority = sorted(offers.unmeasured, key=lambda candidate: candidate.priority)
        ranked = [Offer(candidate, Measurement()) for candidate in by_priority]
    if not ranked:
        raise _no_candidate(offers)
    best: dict[str, Offer] = {}
    for offer in ranked:
        best.setdefault(offer.candidate.backend, offer)
    return Choice(
        subgraph=subgraph,
        workload=offers.workload,
        chosen=ranked[0],
        runner_up=ranked[1] if len(ranked) > 1 else None,
        best_by_backend=tuple(best.values()),
        declines=tuple(offers.declines),
        considered=len(ranked) + len(offers.failed),
        near=near(ranked),
    )


def _no_candidate(offers: Offers) -> NoCandidate:
    reasons = [f"{d.backend}: {d.reason}" for d in offers.declines]
    reasons += [f"{o.candidate.key}: {o.measurement.failure}" for o in offers.failed]
    return NoCandidate(
        f"{offers.workload.key}, which every backend declined ({'; '.join(reasons)})",
        "at least one backend that can run it",
    )

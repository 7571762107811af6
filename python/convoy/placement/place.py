"""The simple placer: each subgraph gets the candidate that is cheapest under the objective."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.base import Backend
from ..cost.model import CostModel
from ..cost.price import price
from ..errors import NoCandidate
from ..ir import objective as objectives
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from .pareto import smallest_maximum

#: Kernel time of candidates that a choice keeps as near, over that of the chosen one; their number.
NEAR, NEAREST = 1.6, 6


def rank(scored: Sequence[Offer], objective: str) -> list[Offer]:
    """Cheapest first. Candidates within the measured spread of the cheapest are ties, and ties
    go to: deterministic kernels, then the smaller workspace, then the backend's own order,
    then the name.
    """

    def cost(item: Offer) -> tuple[float, float]:
        return objectives.own_cost(item.measurement, objective)

    by_cost = sorted(scored, key=lambda item: (cost(item)[0], item.candidate.key))
    if not by_cost:
        return []
    lowest, spread = cost(by_cost[0])
    ties = [item for item in by_cost if cost(item)[0] <= lowest + spread]
    ties.sort(
        key=lambda item: (
            not item.candidate.deterministic,
            item.candidate.workspace,
            item.candidate.priority,
            item.candidate.key,
        )
    )
    return ties + [item for item in by_cost if item not in ties]


def _choose(subgraph: str, options: Offers, objective: str, first: Offer | None) -> Choice:
    ranked = rank(options.measured, objective)
    if first is not None:
        ranked = [first] + [item for item in ranked if item is not first]
    if not ranked:
        if not options.unmeasured:
            reasons = [f"{d.backend}: {d.reason}" for d in options.declines]
            reasons += [f"{s.candidate.key}: {s.measurement.failure}" for s in options.failed]
            raise NoCandidate(
                f"{options.workload.key}, which every backend declined ({'; '.join(reasons)})",
                "at least one backend that can run it",
            )
        ranked = [
            Offer(c, Measurement()) for c in sorted(options.unmeasured, key=lambda c: c.priority)
        ]
    best: dict[str, Offer] = {}
    for item in ranked:
        best.setdefault(item.candidate.backend, item)
    return Choice(
        subgraph=subgraph,
        workload=options.workload,
        chosen=ranked[0],
        runner_up=ranked[1] if len(ranked) > 1 else None,
        best_by_backend=tuple(best.values()),
        declines=tuple(options.declines),
        considered=len(ranked) + len(options.failed),
        near=near(ranked),
    )


def near(ranked: Sequence[Offer]) -> tuple[Offer, ...]:
    """Of candidates that take at most NEAR times as long as the first, NEAREST spread evenly over
    the ranks: the next ones are mostly the same kernel with another knob turned."""
    limit = NEAR * (ranked[0].measurement.kernel_us or 0.0)
    close = [s for s in ranked[1:] if s.measurement.ok and (s.measurement.kernel_us or 0) <= limit]
    if len(close) > NEAREST:
        step = (len(close) - 1) / (NEAREST - 1)
        close = [close[round(i * step)] for i in range(NEAREST)]
    return tuple(close)


def place(
    subgraphs: Sequence[tuple[str, Workload]],
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    objective: str = "graph",
    environment: str = "",
    options: dict[Workload, Offers] | None = None,
) -> Plan:
    """Choose a candidate for each (subgraph name, workload).

    Under ``stream`` host and device time are summed apart and the larger counts, so the choices
    are made jointly (see pareto.py).

    Raises NoCandidate where no backend takes a workload.
    """
    objectives.check(objective)
    if options is None:
        options = price([w for _, w in subgraphs], backends, device, costs)
    firsts: list[Offer | None] = [None] * len(subgraphs)
    if objective == "stream":
        firsts = _side_by_side([options[w].measured for _, w in subgraphs])
    choices = tuple(
        _choose(name, options[workload], objective, first)
        for (name, workload), first in zip(subgraphs, firsts, strict=True)
    )
    known = any(choice.chosen.measurement.ok for choice in choices)
    return Plan(objective, device, choices, costs.source if known else "none", environment)


def _side_by_side(scored: Sequence[Sequence[Offer]]) -> list[Offer | None]:
    """The jointly best candidate of each subgraph when host and device time are summed apart."""
    positions = [i for i, items in enumerate(scored) if items]
    pairs = [[objectives.stream_sides(s.measurement) for s in scored[i]] for i in positions]
    result: list[Offer | None] = [None] * len(scored)
    for i, option in zip(positions, smallest_maximum(pairs), strict=True):
        result[i] = scored[i][option]
    return result

"""Explain a plan: collect the reasons for each of its decisions from the offers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ..cost.native import leftover_us
from ..ir import objective as objectives
from ..ir.offer import Offer, Offers
from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from ..partition.match_graph import Subgraph
from .explanation import Explanation, Fusion, OpExplanation, Otherwise, Rival
from .rank import rank

#: The cost of one launch under each objective, in words.
COUNTED = {
    "graph": (
        "kernel_us (chained_us behind a kernel that lets its successor start early) "
        "plus a share of the difference to cold_us"
    ),
    "stream": "the larger of two sums: the same plus the gap between launches, and enqueue_us",
    "sync": "e2e_us plus a share of the difference between kernel_us and cold_us",
}


def explanation_of(
    plan: Plan,
    subgraphs: Sequence[Subgraph],
    offers: Mapping[Workload, Offers],
    others: Mapping[str, Plan],
) -> Explanation:
    """Explain a plan.

    Args:
        plan: The plan.
        subgraphs: All subgraphs of its network.
        offers: The offers of their workloads.
        others: The plans under other objectives.
    """
    known = {subgraph.id: subgraph for subgraph in subgraphs}
    by_root: dict[str, list[Subgraph]] = {}
    for subgraph in subgraphs:
        by_root.setdefault(subgraph.root, []).append(subgraph)
    elsewhere = {
        name: {op: choice for choice in other.choices for op in known[choice.subgraph].ops}
        for name, other in others.items()
    }
    ops = []
    for choice in plan.choices:
        subgraph = known[choice.subgraph]
        fusions = _fusions(choice, by_root[subgraph.root], offers, plan)
        ops.append(_op(choice, subgraph, offers, fusions, elsewhere, plan.objective))
    return Explanation(
        objective=plan.objective,
        counted=COUNTED[plan.objective],
        source=plan.source,
        device=plan.device.name,
        total_us=plan.total_us(),
        ops=tuple(ops),
        otherwise=tuple(_otherwise(name, plan, other, ops) for name, other in others.items()),
    )


def _otherwise(objective: str, plan: Plan, other: Plan, ops: Sequence[OpExplanation]) -> Otherwise:
    changed = sum(objective in dict(op.elsewhere) for op in ops)
    return Otherwise(objective, changed, other.total_us(objective), plan.total_us(objective))


def _op(
    choice: Choice,
    subgraph: Subgraph,
    offers: Mapping[Workload, Offers],
    fusions: tuple[Fusion, ...],
    elsewhere: Mapping[str, Mapping[str, Choice]],
    objective: str,
) -> OpExplanation:
    found, chosen = offers[choice.workload], choice.chosen
    cost, spread = objectives.own_cost(chosen.measurement, objective, choice.linked)
    losers = [
        _rival(offer, objective, cost, spread, choice.linked)
        for offer in rank(found.measured, objective)
        if offer.candidate.key != chosen.candidate.key
    ]
    losers.sort(key=lambda offer: offer.cost_us)
    winner = _rival(chosen, objective, cost, spread, choice.linked)
    first = subgraph.ops[0]
    others = {name: theirs[first] for name, theirs in elsewhere.items() if first in theirs}
    changes = ((name, _change(choice, other)) for name, other in others.items())
    return OpExplanation(
        subgraph=choice.subgraph,
        workload=choice.workload,
        winner=dataclasses.replace(winner, margin=1.0, tie=False),
        losers=tuple(losers),
        failed=tuple((o.candidate.key, o.measurement.failure) for o in found.failed),
        declines=choice.declines,
        fusions=fusions,
        elsewhere=tuple((name, text) for name, text in changes if text),
        branches=max(1, len(subgraph.split)),
        layer=choice.label,
    )


def _change(choice: Choice, other: Choice) -> str:
    """Name what another plan selects for an operation; empty if that is the same."""
    kernel = other.chosen.candidate.key
    several = choice.workload.is_back_to_back or other.workload.is_back_to_back
    if several and other.workload.label != choice.workload.label:
        return f"{kernel} for {other.workload.label}"
    if other.workload.k != choice.workload.k:
        return f"{kernel} for {other.workload.k} channels of the parallel branches"
    if kernel == choice.chosen.candidate.key:
        return ""
    if other.workload.epilogue != choice.workload.epilogue:
        return f"{kernel} for {other.workload.epilogue.name or 'the convolution alone'}"
    return kernel


def _rival(offer: Offer, objective: str, best: float, spread: float, linked: bool) -> Rival:
    measurement = offer.measurement
    cost, own_spread = objectives.own_cost(measurement, objective, linked)
    return Rival(
        offer.candidate.backend,
        offer.candidate.kernel,
        cost,
        own_spread,
        measurement.kernel_us,
        measurement.enqueue_us,
        measurement.e2e_us,
        cost / best if best else None,
        abs(cost - best) <= spread,
    )


def _fusions(
    choice: Choice, group: Sequence[Subgraph], offers: Mapping[Workload, Offers], plan: Plan
) -> tuple[Fusion, ...]:
    """The alternatives of one root, longest first, without those that were not priced."""
    found = []
    for subgraph in group:
        known = offers.get(subgraph.require_workload())
        if known is None:
            continue
        ranked = rank(known.measured, plan.objective)
        found.append(
            Fusion(
                known.workload.epilogue.name,
                ranked[0].candidate.key if ranked else "",
                objectives.own_cost(ranked[0].measurement, plan.objective)[0] if ranked else None,
                leftover_us(subgraph, group[0], plan.device),
                subgraph.id == choice.subgraph,
            )
        )
    return tuple(found)
